/*
 * A fake of the functions of macOS that agent/chipwatch/collectors/apple calls: CoreFoundation, IOKit, IOReport, the pools of
 * Objective-C, and two of libSystem, in one library for Linux. What they take and return is written from the public
 * headers and from what open programs for Macs declare; nobody has compared it with a Mac.
 *
 * The machine comes from a table (fakeLoad): lines of fields between tabs,
 *
 *     vm       1                              kern.hv_vmm_present; without the line it is not known
 *     service  CLASS  NAME                    an entry of the registry; the next lines are about it
 *     number   KEY    VALUE                   in its PerformanceStatistics
 *     text     KEY    VALUE                   the same, as a string
 *     data     KEY    HEX                     a property of it
 *     word     KEY    VALUE                   the same, as a string
 *     energy   NAME   UNIT  VALUE             a channel of "Energy Model"
 *     states   NAME   STATE:TIME STATE:TIME   a channel of "GPU Stats", "GPU Performance States"
 *     smc      KEY    TYPE  SIZE  HEX         a key of the SMC, in the order of its table
 *
 * It counts what is alive, and notes as trouble: a NULL or a dead object where macOS would end the process, an object of
 * another type, one released too often, and any argument that is not as it should be. An object is never freed, so that
 * a dead one is recognised. On demand (fakeFail) a call that may fail fails: it returns NULL, or an error.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define MAGIC 0x41505046u
#define LOWEST INT64_MIN

enum { STRING = 7, DICTIONARY = 18, ARRAY = 19, DATA = 20, NUMBER = 22, SUBSCRIPTION = 90 };
enum { ROOM = 512, SERVICES = 64, PROPERTIES = 16, SENSORS = 4096, STATES = 64, PORTS = 4096 };

typedef struct { char name[64], unit[16]; int simple; int64_t value; int many; char states[STATES][16]; int64_t times[STATES]; } Channel;
typedef struct Object Object;
struct Object {
    uint32_t magic, type;
    long refs, count;
    int mutable;
    char *text;
    int64_t number;
    size_t length;
    Object **items, **keys;
    Channel *channel;
};

typedef struct { char key[64]; int kind; int64_t number; char text[64]; unsigned char data[1024]; size_t length; } Property;
typedef struct { char class[64], name[64]; int many; Property properties[PROPERTIES]; } Service;
typedef struct { char key[5], type[5]; uint32_t size; unsigned char bytes[32]; } Sensor;
typedef struct { int kind, refs, service, position; char class[64]; } Port;

static int vm = -1, many_services, many_channels, many_sensors, many_pool, marks;
static Service services[SERVICES];
static Channel channels[ROOM];
static Sensor sensors[SENSORS];
static Port ports[PORTS];
static Object *pool[ROOM * 8];
static long alive, calls, first_failure, for_ever;
static char trouble[4096];
enum { NOTHING, ITERATOR, ENTRY, CONNECTION };

API const void *kCFTypeArrayCallBacks[5] = { 0 };

/* -- what tests ask -------------------------------------------------------------------------------------------- */

static void odd(const char *who, const char *what)
{
    size_t used = strlen(trouble);
    if (used + strlen(who) + strlen(what) + 4 < sizeof trouble)
        snprintf(trouble + used, sizeof trouble - used, "%s: %s\n", who, what);
}

#define MUST(condition) do { if (!(condition)) odd(__func__, #condition); } while (0)

static int fails(void)
{
    calls++;
    return first_failure && (calls == first_failure || (for_ever && calls > first_failure));
}

API long fakeAlive(void)
{
    long open = alive + many_pool + marks;
    for (int n = 1; n < PORTS; n++)
        open += ports[n].refs;
    return open;
}

API long fakeCalls(void) { return calls; }
API const char *fakeTrouble(void) { return trouble; }

/* From the nth call on that may fail, counted from now, it fails: that one, or all of them. */
API void fakeFail(long nth, int all)
{
    calls = 0;
    first_failure = nth;
    for_ever = all;
}

API void fakeForget(void) { trouble[0] = 0; }

static size_t from_hex(const char *text, unsigned char *bytes, size_t most)
{
    size_t n = 0;
    for (unsigned value; n < most && sscanf(text + 2 * n, "%2x", &value) == 1; n++)
        bytes[n] = (unsigned char)value;
    return n;
}

static void states_of(Channel *channel, char *text)
{
    for (char *rest, *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *colon = strrchr(word, ':');
        *colon = 0;
        snprintf(channel->states[channel->many], 16, "%s", word);
        channel->times[channel->many++] = atoll(colon + 1);
    }
}

API void fakeLoad(const char *table)
{
    char *copy = strdup(table), *rest;
    vm = -1;
    many_services = many_channels = many_sensors = 0;
    memset(services, 0, sizeof services);
    memset(channels, 0, sizeof channels);
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *f[5] = { 0 }, *next = line;
        for (int n = 0; n < 5 && next; n++)
            f[n] = strsep(&next, "\t");
        if (!strcmp(f[0], "vm"))
            vm = atoi(f[1]);
        else if (!strcmp(f[0], "service")) {
            Service *made = &services[many_services++];
            snprintf(made->class, 64, "%s", f[1]);
            snprintf(made->name, 64, "%s", f[2]);
        } else if (!strcmp(f[0], "energy") || !strcmp(f[0], "states")) {
            Channel *made = &channels[many_channels++];
            snprintf(made->name, 64, "%s", f[1]);
            if ((made->simple = !strcmp(f[0], "energy"))) {
                snprintf(made->unit, 16, "%s", f[2]);
                made->value = atoll(f[3]);
            } else {
                strcpy(made->unit, "24Mticks");
                states_of(made, f[2]);
            }
        } else if (!strcmp(f[0], "smc")) {
            Sensor *made = &sensors[many_sensors++];
            memset(made, 0, sizeof *made);
            snprintf(made->key, 5, "%s", f[1]);
            snprintf(made->type, 5, "%s", f[2]);
            made->size = (uint32_t)atoi(f[3]);
            from_hex(f[4], made->bytes, 32);
        } else {
            Service *last = &services[many_services - 1];
            Property *made = &last->properties[last->many++];
            made->kind = f[0][0];
            snprintf(made->key, 64, "%s", f[1]);
            snprintf(made->text, 64, "%s", f[2]);
            made->number = atoll(f[2]);
            if (made->kind == 'd')
                made->length = from_hex(f[2], made->data, sizeof made->data);
        }
    }
    free(copy);
}

/* -- objects --------------------------------------------------------------------------------------------------- */

static Object *made(uint32_t type)
{
    Object *object = calloc(1, sizeof *object);
    object->magic = MAGIC;
    object->type = type;
    object->refs = 1;
    alive++;
    return object;
}

static Object *string(const char *text)
{
    Object *object = made(STRING);
    object->text = strdup(text ? text : "");
    return object;
}

static void drop(Object *object)
{
    if (--object->refs)
        return;
    alive--;
    for (long n = 0; n < object->count; n++) {
        if (object->keys[n])
            drop(object->keys[n]);
        drop(object->items[n]);
    }
    free(object->text);
    free(object->items);
    free(object->keys);
    free(object->channel);
    object->text = NULL;
    object->items = object->keys = NULL;
    object->channel = NULL;
    object->count = 0;
}

/* Both are taken over. */
static void add(Object *object, Object *key, Object *value)
{
    object->items = realloc(object->items, (size_t)(object->count + 1) * sizeof value);
    object->keys = realloc(object->keys, (size_t)(object->count + 1) * sizeof key);
    object->items[object->count] = value;
    object->keys[object->count++] = key;
}

static Object *kept(Object *object)
{
    object->refs++;
    return object;
}

static int fit(const char *who, const void *ref, uint32_t type)
{
    const Object *object = ref;
    if (!object)
        odd(who, "NULL");
    else if (object->magic != MAGIC)
        odd(who, "no object");
    else if (object->refs < 1)
        odd(who, "a dead object");
    else if (type && object->type != type)
        odd(who, "an object of another type");
    else
        return 1;
    return 0;
}

#define FIT(ref, type) fit(__func__, ref, type)

static void set(Object *dictionary, Object *key, Object *value)
{
    for (long n = 0; n < dictionary->count; n++)
        if (!strcmp(dictionary->keys[n]->text, key->text)) {
            drop(dictionary->items[n]);
            dictionary->items[n] = kept(value);
            return;
        }
    add(dictionary, kept(key), kept(value));
}

static void put(Object *dictionary, const char *key, Object *value)
{
    Object *text = string(key);
    set(dictionary, text, value);
    drop(text);
    drop(value);
}

static Object *get(const Object *dictionary, const char *key)
{
    for (long n = 0; n < dictionary->count; n++)
        if (!strcmp(dictionary->keys[n]->text, key))
            return dictionary->items[n];
    return NULL;
}

static Object *autoreleased(Object *object)
{
    MUST(marks > 0);  /* without a pool it would live for ever */
    pool[many_pool++] = object;
    return object;
}

API void *objc_autoreleasePoolPush(void)
{
    pool[many_pool] = NULL;
    marks++;
    return (void *)(intptr_t)++many_pool;
}

API void objc_autoreleasePoolPop(void *mark)
{
    MUST(marks > 0);
    MUST((intptr_t)mark > 0 && (intptr_t)mark <= many_pool);
    while (many_pool > (intptr_t)mark) {
        MUST(pool[many_pool - 1]);  /* a pool within this one is still open */
        drop(pool[--many_pool]);
    }
    many_pool--;
    marks--;
}

/* -- CoreFoundation -------------------------------------------------------------------------------------------- */

API void CFRelease(Object *ref)
{
    if (FIT(ref, 0))
        drop(ref);
}

API unsigned long CFGetTypeID(Object *ref) { return FIT(ref, 0) ? ref->type : 0; }
API unsigned long CFStringGetTypeID(void) { return STRING; }
API unsigned long CFNumberGetTypeID(void) { return NUMBER; }
API unsigned long CFDataGetTypeID(void) { return DATA; }
API unsigned long CFArrayGetTypeID(void) { return ARRAY; }
API unsigned long CFDictionaryGetTypeID(void) { return DICTIONARY; }

API Object *CFStringCreateWithCString(void *allocator, const char *text, uint32_t encoding)
{
    MUST(!allocator);
    MUST(text);
    MUST(encoding == 0x08000100);
    return fails() ? NULL : string(text);
}

API unsigned char CFStringGetCString(Object *ref, char *buffer, long size, uint32_t encoding)
{
    MUST(encoding == 0x08000100);
    if (!FIT(ref, STRING) || fails() || (long)strlen(ref->text) >= size)
        return 0;
    strcpy(buffer, ref->text);
    return 1;
}

API unsigned char CFNumberGetValue(Object *ref, long type, void *value)
{
    MUST(type == 4);
    if (!FIT(ref, NUMBER) || fails())
        return 0;
    *(int64_t *)value = ref->number;
    return 1;
}

API long CFDataGetLength(Object *ref) { return FIT(ref, DATA) ? (long)ref->length : 0; }
API const void *CFDataGetBytePtr(Object *ref) { return FIT(ref, DATA) && !fails() ? ref->text : NULL; }
API long CFArrayGetCount(Object *ref) { return FIT(ref, ARRAY) ? ref->count : 0; }

API Object *CFArrayGetValueAtIndex(Object *ref, long n)
{
    if (!FIT(ref, ARRAY))
        return NULL;
    MUST(n >= 0 && n < ref->count);
    return fails() ? NULL : ref->items[n];
}

API Object *CFArrayCreateMutable(void *allocator, long capacity, const void *callbacks)
{
    MUST(!allocator);
    MUST(!capacity);
    MUST(callbacks == kCFTypeArrayCallBacks);
    if (fails())
        return NULL;
    Object *array = made(ARRAY);
    array->mutable = 1;
    return array;
}

API void CFArrayAppendValue(Object *array, Object *value)
{
    if (!FIT(array, ARRAY) || !FIT(value, 0))
        return;
    MUST(array->mutable);
    add(array, NULL, kept(value));
}

API Object *CFDictionaryGetValue(Object *ref, Object *key)
{
    return FIT(ref, DICTIONARY) && FIT(key, STRING) && !fails() ? get(ref, key->text) : NULL;
}

API Object *CFDictionaryCreateMutableCopy(void *allocator, long capacity, Object *ref)
{
    MUST(!allocator);
    MUST(!capacity);
    if (!FIT(ref, DICTIONARY) || fails())
        return NULL;
    Object *copy = made(DICTIONARY);
    copy->mutable = 1;
    for (long n = 0; n < ref->count; n++)
        set(copy, ref->keys[n], ref->items[n]);
    return copy;
}

API void CFDictionarySetValue(Object *ref, Object *key, Object *value)
{
    if (!FIT(ref, DICTIONARY) || !FIT(key, STRING) || !FIT(value, 0))
        return;
    MUST(ref->mutable);
    set(ref, key, value);
}

/* -- IOKit ----------------------------------------------------------------------------------------------------- */

static uint32_t port(int kind, int service)
{
    for (uint32_t n = 1; n < PORTS; n++)
        if (!ports[n].refs) {
            ports[n] = (Port){ .kind = kind, .refs = 1, .service = service };
            return n;
        }
    odd("port", "too many are open");
    return 0;
}

static Port *opened(const char *who, uint32_t n, int kind)
{
    if (n > 0 && n < PORTS && ports[n].refs > 0 && ports[n].kind == kind)
        return &ports[n];
    odd(who, "no such port");
    return NULL;
}

API uint32_t mach_task_self(void) { return 0x103; }

API int sysctlbyname(const char *name, void *value, size_t *size, const void *to, size_t length)
{
    MUST(!strcmp(name, "kern.hv_vmm_present"));
    MUST(*size == 4);
    MUST(!to && !length);
    if (vm < 0 || fails())
        return -1;
    *(int *)value = vm;
    return 0;
}

API Object *IOServiceMatching(const char *class)
{
    if (fails())
        return NULL;
    Object *dictionary = made(DICTIONARY);
    dictionary->mutable = 1;
    put(dictionary, "IOProviderClass", string(class));
    return dictionary;
}

API int32_t IOServiceGetMatchingServices(uint32_t main, Object *matching, uint32_t *existing)
{
    MUST(!main);
    if (!FIT(matching, DICTIONARY))
        return 1;
    char class[64];
    snprintf(class, 64, "%s", get(matching, "IOProviderClass")->text);
    drop(matching);
    if (fails())
        return (int32_t)0xe00002c0;
    *existing = port(ITERATOR, 0);
    strcpy(ports[*existing].class, class);
    return 0;
}

API uint32_t IOIteratorNext(uint32_t iterator)
{
    Port *at = opened(__func__, iterator, ITERATOR);
    if (!at || fails())
        return 0;
    while (at->position < many_services && strcmp(services[at->position].class, at->class))
        at->position++;
    return at->position < many_services ? port(ENTRY, at->position++) : 0;
}

API int32_t IOObjectRelease(uint32_t n)
{
    if (n < 1 || n >= PORTS || ports[n].refs < 1)
        odd(__func__, "no such port");
    else
        ports[n].refs--;
    return 0;
}

API int32_t IORegistryEntryGetName(uint32_t entry, char *name)
{
    Port *at = opened(__func__, entry, ENTRY);
    if (!at || fails())
        return 1;
    memset(name, 0, 128);  /* all of an io_name_t */
    strcpy(name, services[at->service].name);
    return 0;
}

static Object *value_of(const Property *property)
{
    Object *object = made(property->kind == 'n' ? NUMBER : property->kind == 'd' ? DATA : STRING);
    object->number = property->number;
    object->length = property->length;
    object->text = calloc(1, sizeof property->data + 1);
    memcpy(object->text, property->kind == 'd' ? (const void *)property->data : property->text,
           property->kind == 'd' ? property->length : sizeof property->text);
    return object;
}

API Object *IORegistryEntryCreateCFProperty(uint32_t entry, Object *key, void *allocator, uint32_t options)
{
    MUST(!allocator);
    MUST(!options);
    Port *at = opened(__func__, entry, ENTRY);
    if (!at || !FIT(key, STRING) || fails())
        return NULL;
    Service *service = &services[at->service];
    Object *statistics = NULL;
    for (int n = 0; n < service->many; n++) {
        Property *property = &service->properties[n];
        if (strchr("dw", property->kind) && !strcmp(property->key, key->text))
            return value_of(property);
        if (strchr("nt", property->kind) && !strcmp("PerformanceStatistics", key->text)) {
            statistics = statistics ? statistics : made(DICTIONARY);
            put(statistics, property->key, value_of(property));
        }
    }
    return statistics;
}

API int32_t IOServiceOpen(uint32_t entry, uint32_t task, uint32_t type, uint32_t *connection)
{
    MUST(task == 0x103);
    MUST(!type);
    Port *at = opened(__func__, entry, ENTRY);
    if (!at || fails())
        return (int32_t)0xe00002e2;
    *connection = port(CONNECTION, at->service);
    return 0;
}

API int32_t IOServiceClose(uint32_t connection)
{
    if (opened(__func__, connection, CONNECTION))
        ports[connection].refs--;
    return 0;
}

/* The message of the SMC's driver, as C programs declare it. */
typedef struct {
    uint32_t key;
    struct { uint8_t major, minor, build, reserved; uint16_t release; } version;
    struct { uint16_t version, length; uint32_t cpu, gpu, memory; } limits;
    struct { uint32_t size, type; uint8_t attributes; } info;
    uint8_t result, status, command;
    uint32_t index;
    uint8_t bytes[32];
} Message;
_Static_assert(sizeof(Message) == 80, "the message of the SMC has 80 bytes");

static uint32_t word(const char *text)
{
    return (uint32_t)(uint8_t)text[0] << 24 | (uint32_t)(uint8_t)text[1] << 16 | (uint32_t)(uint8_t)text[2] << 8 | (uint8_t)text[3];
}

static void answer(const Message *question, Message *answer)
{
    Sensor count = { .key = "#KEY", .type = "ui32", .size = 4, .bytes = { 0, 0, (uint8_t)(many_sensors >> 8), (uint8_t)many_sensors } };
    if (question->command == 8) {
        if (question->index < (uint32_t)many_sensors)
            answer->key = word(sensors[question->index].key);
        else
            answer->result = 0x84;
        return;
    }
    const Sensor *sensor = question->key == word("#KEY") ? &count : NULL;
    for (int n = 0; n < many_sensors && !sensor; n++)
        if (word(sensors[n].key) == question->key)
            sensor = &sensors[n];
    if (!sensor)
        answer->result = 0x84;
    else if (question->command == 9) {
        answer->info.size = sensor->size;
        answer->info.type = word(sensor->type);
    } else if (question->command == 5) {
        if (question->info.size != sensor->size || question->info.type != word(sensor->type))
            odd("SMC", "a key is read with another size or type than it has");
        memcpy(answer->bytes, sensor->bytes, 32);
    } else
        odd("SMC", "no such command");
}

API int32_t IOConnectCallStructMethod(uint32_t connection, uint32_t selector, const void *in, size_t in_size, void *out, size_t *out_size)
{
    MUST(selector == 2);
    MUST(in_size == sizeof(Message));
    MUST(*out_size == sizeof(Message));
    if (!opened(__func__, connection, CONNECTION) || fails())
        return (int32_t)0xe00002bc;
    Message *said = memset(out, 0, sizeof(Message));
    answer(in, said);
    if (said->result)
        memset(said->bytes, 0x42, sizeof said->bytes);  /* as a number: 48.6 */
    return 0;
}

/* -- IOReport -------------------------------------------------------------------------------------------------- */

static const char *group_of(const Channel *channel) { return channel->simple ? "Energy Model" : "GPU Stats"; }

static Object *item(const Channel *channel)
{
    Object *one = made(DICTIONARY);
    one->channel = malloc(sizeof *channel);
    *one->channel = *channel;
    put(one, "group", string(group_of(channel)));
    put(one, "name", string(channel->name));
    return one;
}

static Object *described(Object *array)
{
    Object *dictionary = made(DICTIONARY);
    put(dictionary, "QueryOpts", made(NUMBER));
    put(dictionary, "IOReportChannels", array);
    return dictionary;
}

API Object *IOReportCopyChannelsInGroup(Object *group, Object *subgroup, uint64_t a, uint64_t b, uint64_t c)
{
    MUST(!a && !b && !c);
    if (!FIT(group, STRING) || (subgroup && !FIT(subgroup, STRING)) || fails())
        return NULL;
    Object *array = made(ARRAY);
    for (int n = 0; n < many_channels; n++) {
        const char *within = channels[n].simple ? "" : "GPU Performance States";
        if (!strcmp(group_of(&channels[n]), group->text) && (!subgroup || !strcmp(within, subgroup->text)))
            add(array, NULL, item(&channels[n]));
    }
    if (array->count)
        return described(array);
    drop(array);
    return NULL;
}

API void IOReportMergeChannels(Object *into, Object *from, void *nothing)
{
    MUST(!nothing);
    if (!FIT(into, DICTIONARY) || !FIT(from, DICTIONARY))
        return;
    Object *array = get(into, "IOReportChannels"), *more = get(from, "IOReportChannels");
    if (!FIT(array, ARRAY) || !FIT(more, ARRAY))
        return;
    MUST(array->mutable);
    for (long n = 0; n < more->count; n++)
        add(array, NULL, kept(more->items[n]));
}

API Object *IOReportCreateSubscription(void *a, Object *wanted, Object **subscribed, uint64_t d, void *e)
{
    MUST(!a && !d && !e);
    if (!FIT(wanted, DICTIONARY) || fails())
        return NULL;
    MUST(wanted->mutable);
    *subscribed = made(DICTIONARY);
    for (long n = 0; n < wanted->count; n++)
        set(*subscribed, wanted->keys[n], wanted->items[n]);
    return made(SUBSCRIPTION);
}

static const Channel *channel_of(const Object *one)
{
    for (int n = 0; n < many_channels; n++)
        if (!strcmp(channels[n].name, one->channel->name) && channels[n].simple == one->channel->simple)
            return &channels[n];
    return NULL;
}

API Object *IOReportCreateSamples(Object *subscription, Object *wanted, void *nothing)
{
    MUST(!nothing);
    if (!FIT(subscription, SUBSCRIPTION) || !FIT(wanted, DICTIONARY) || fails())
        return NULL;
    Object *array = made(ARRAY), *asked = get(wanted, "IOReportChannels");
    for (long n = 0; n < asked->count; n++) {
        const Channel *channel = channel_of(asked->items[n]);
        if (channel)
            add(array, NULL, item(channel));
    }
    return described(array);
}

API Object *IOReportCreateSamplesDelta(Object *before, Object *now, void *nothing)
{
    MUST(!nothing);
    if (!FIT(before, DICTIONARY) || !FIT(now, DICTIONARY) || fails())
        return NULL;
    Object *array = made(ARRAY), *old = get(before, "IOReportChannels"), *new = get(now, "IOReportChannels");
    for (long n = 0; n < new->count; n++)
        for (long m = 0; m < old->count; m++) {
            Channel change = *new->items[n]->channel, *was = old->items[m]->channel;
            if (strcmp(change.name, was->name))
                continue;
            change.value -= was->value;
            for (int k = 0; k < change.many; k++)
                change.times[k] -= was->times[k];
            add(array, NULL, item(&change));
        }
    return described(array);
}

static int a_channel(const char *who, Object *ref)
{
    if (!fit(who, ref, DICTIONARY))
        return 0;
    if (!ref->channel)
        odd(who, "no channel");
    return ref->channel != NULL;
}

/* Got, and so the channel's. */
API Object *IOReportChannelGetGroup(Object *ref) { return a_channel(__func__, ref) && !fails() ? get(ref, "group") : NULL; }
API Object *IOReportChannelGetChannelName(Object *ref) { return a_channel(__func__, ref) && !fails() ? get(ref, "name") : NULL; }

/* Got, but made for this call, with blanks around it. */
API Object *IOReportChannelGetUnitLabel(Object *ref)
{
    char text[32];
    if (!a_channel(__func__, ref) || fails())
        return NULL;
    snprintf(text, sizeof text, "%8s ", ref->channel->unit);
    return autoreleased(string(text));
}

API int64_t IOReportSimpleGetIntegerValue(Object *ref, uint64_t zero)
{
    MUST(!zero);
    return a_channel(__func__, ref) && ref->channel->simple && !fails() ? ref->channel->value : LOWEST;
}

API int32_t IOReportStateGetCount(Object *ref) { return a_channel(__func__, ref) && !fails() ? ref->channel->many : 0; }

API Object *IOReportStateGetNameForIndex(Object *ref, int32_t n)
{
    if (!a_channel(__func__, ref))
        return NULL;
    MUST(n >= 0 && n < ref->channel->many);
    return fails() ? NULL : autoreleased(string(ref->channel->states[n]));
}

API int64_t IOReportStateGetResidency(Object *ref, int32_t n)
{
    if (!a_channel(__func__, ref))
        return 0;
    MUST(n >= 0 && n < ref->channel->many);
    return ref->channel->times[n];
}
