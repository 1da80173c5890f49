/*
 * A fake libnvidia-ml.so.1: answers from a table in a text file, which the environment variable FAKE_NVML names.
 *
 * Each line is KEY=VALUE. The keys of a GPU begin with its index (0.temperature=63), the keys of a MIG instance
 * with that and its number (0.mig.1.memory.used=...). What has no line is not supported. A value is
 *
 *     63        a number, or a text
 *     100@20    a number that grows by 20 a second from when the file was read
 *     !15       the error of that code
 *     hang      a call that never returns
 *
 *     0.kernels=0.2/5+1;60   a kernel of 0.2 s every 5 s, the first one after 1 s, none from 60 s on: what the driver
 *                        samples, GPM and the utilization tell follows from it, whatever their own lines say
 *
 *     clock=stopped      time passes by fakePass alone, however long the test takes
 *     began=1234         time since that second of CLOCK_MONOTONIC: the same in all processes
 *     uptime=kept        time goes on when the library is opened again, as on a machine whose driver is loaded again
 *
 * of a field (0.field.83=...) it may end in the type of the union's member: u unsigned int, s signed int, d double,
 * l unsigned long, h unsigned short; unsigned long long otherwise. "0.lost=1" makes every call about GPU 0 fail with 15;
 * "0.lost=!3" with 3, but for its handle, UUID and name; "0.lost=hang": it never returns.
 *
 * The structs are written from NVIDIA's API reference; nvml_sizes.h, which is generated from nvidia-ml-py, checks them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nvml_sizes.h"

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SHORT = 7, TIMEOUT = 10, LOST = 15,
       VERSION = 25, LINK_COUNT = 91, LINK_STATE = 165 };
typedef unsigned int uint;
typedef unsigned long long ull;

typedef struct { uint gpu, memory; } Utilization;
typedef struct { ull total, free, used; } Memory;
typedef struct { uint version; ull total, reserved, free, used; } Memory2;
typedef union { double d; uint ui; unsigned long ul; ull ll; long long sll; int si; unsigned short us; } Value;
typedef struct { uint id, scope; long long stamp, latency; uint type; int code; Value value; } Field;
typedef struct { uint pid; ull memory; uint gi, ci; } Process;
typedef struct { uint pid; ull stamp; uint sm, mem, enc, dec; } Sample;
typedef struct { void *device; ull type, data; uint gi, ci; } Event;
typedef struct { uint id; int code; double value; char *names[3]; } Metric;
typedef struct { uint processors, copiers, decoders, encoders, jpegs, flows, slices, compute; ull megabytes; } Attributes;
typedef struct { ull stamp; Value value; } Share;
typedef struct { uint version, many; void *first, *second; Metric metrics[1]; } Metrics;
typedef struct { uint version, supported; } Support;
typedef struct { void *device; uint id, profile, start, size; } Instance;
typedef struct { uint version, sensor; int temperature; } Temperature;
typedef struct { uint version; int margin; } Margin;
typedef struct { uint version; ull aggregate[3], parity, secded, corrected, buckets[5]; uint over; } Sram;
typedef struct { uint version; unsigned char cluster[16]; int status; uint clique; unsigned char state; uint mask;
                 unsigned char summary; } Fabric;

#define SAME(type, size) _Static_assert(sizeof(type) == (size), "unlike nvidia-ml-py: " #type)
SAME(Utilization, SIZE_UTILIZATION);
SAME(Memory, SIZE_MEMORY);
SAME(Memory2, SIZE_MEMORY2);
SAME(Field, SIZE_FIELD);
SAME(Process, SIZE_PROCESS);
SAME(Sample, SIZE_SAMPLE);
SAME(Event, SIZE_EVENT);
SAME(Metric, SIZE_METRIC);
SAME(Attributes, SIZE_ATTRIBUTES);
SAME(Share, SIZE_SHARE);
SAME(Support, SIZE_SUPPORT);
SAME(Instance, SIZE_INSTANCE);
SAME(Temperature, SIZE_TEMPERATURE);
SAME(Margin, SIZE_MARGIN);
SAME(Sram, SIZE_SRAM);
SAME(Fabric, SIZE_FABRIC);
_Static_assert(__builtin_offsetof(Metrics, metrics) == OFFSET_METRICS, "unlike nvidia-ml-py: Metrics");

/* -- the table ---------------------------------------------------------------------------------------------- */

#define SLOTS 32768
#define GPUS 64
#define MIGS 8

typedef struct { char *key, *value; ull calls; } Slot;
typedef struct { char at[24]; int gpu; } Device;

static Slot table[SLOTS];
static Device devices[GPUS][1 + MIGS];
static char *events;
static struct timespec begun;
static double skipped;
static pid_t opener;

static Slot *slot(const char *key)
{
    unsigned n = 2166136261u;
    for (const char *c = key; *c; c++)
        n = (n ^ (unsigned char)*c) * 16777619u;
    while (table[n % SLOTS].key && strcmp(table[n % SLOTS].key, key))
        n++;
    return &table[n % SLOTS];
}

static void set(const char *key, const char *value)
{
    Slot *found = slot(key);
    if (!found->key)
        found->key = strdup(key);
    free(found->value);
    found->value = value ? strdup(value) : NULL;
}

/* Reads the file again; for tests that change it. A key whose line is gone is not supported any more. */
void fakeLoad(void)
{
    char line[1024], *value;
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    for (int n = 0; n < SLOTS; n++) {
        free(table[n].value);
        table[n].value = NULL;
    }
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!(value = strchr(line, '=')))
            continue;
        *value++ = 0;
        set(line, value);
    }
    if (file)
        fclose(file);
    free(events);
    events = slot("events")->value ? strdup(slot("events")->value) : NULL;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (slot("began")->value)
        begun = (struct timespec){ .tv_sec = atol(slot("began")->value) };
    for (int g = 0; g < GPUS; g++)
        for (int m = 0; m <= MIGS; m++) {
            Device *device = &devices[g][m];
            device->gpu = g;
            if (m)
                snprintf(device->at, sizeof device->at, "%d.mig.%d", g, m - 1);
            else
                snprintf(device->at, sizeof device->at, "%d", g);
        }
}

/* How often a function was called. */
ull fakeCalls(const char *function)
{
    return slot(function)->calls;
}

static void count(const char *function)
{
    Slot *found = slot(function);
    if (!found->key)
        found->key = strdup(function);
    found->calls++;
}

static int text(const char *key, const char **value)
{
    *value = slot(key)->value;
    if (!*value)
        return UNSUPPORTED;
    if (!strcmp(*value, "hang"))
        for (;;)
            pause();
    return **value == '!' ? atoi(*value + 1) : OK;
}


/* Lets time pass: for tests that need hours of it. */
void fakePass(double seconds)
{
    skipped += seconds;
}

static double now(void)
{
    struct timespec time;
    if (slot("clock")->value)
        return skipped;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)(time.tv_sec - begun.tv_sec) + (double)(time.tv_nsec - begun.tv_nsec) / 1e9 + skipped;
}

static double parse(const char *value)
{
    char *end;
    double number = strtod(value, &end);
    return *end == '@' ? number + strtod(end + 1, NULL) * now() : number;
}

static int ask(const Device *device, const char *what, const char **value)
{
    char key[80];
    if (getpid() != opener)
        return UNINITIALIZED;
    if (!device)
        return INVALID;
    snprintf(key, sizeof key, "%d.lost", device->gpu);
    if (slot(key)->value) {
        int code = text(key, value);
        if (!code)
            return LOST;
        if (strcmp(what, "uuid") && strcmp(what, "name"))
            return code;
    }
    snprintf(key, sizeof key, "%s.%s", device->at, what);
    return text(key, value);
}

static int number(const Device *device, const char *what, double *found)
{
    const char *value;
    int code = ask(device, what, &value);
    if (!code)
        *found = parse(value);
    return code;
}

/* Share of the time from `from` to `to` in which a kernel of the device ran, by its schedule. */
static int worked(const Device *device, double from, double to, double *share)
{
    const char *value;
    double on, every, first = 0, until = 1e18, total = 0;
    int code = ask(device, "kernels", &value);
    if (code)
        return code;
    if (sscanf(value, "%lf/%lf+%lf;%lf", &on, &every, &first, &until) < 3)
        sscanf(value, "%lf/%lf;%lf", &on, &every, &until);
    for (int sign = -1; sign <= 1; sign += 2) {
        double at = sign < 0 ? from : to;
        at = (at < until ? at : until) - first;
        if (at > 0) {
            double rest = at - every * (double)(long long)(at / every);
            total += sign * (on * (double)(long long)(at / every) + (rest < on ? rest : on));
        }
    }
    *share = to > from ? total / (to - from) : 0;
    return OK;
}

#define ENTER count(__func__)
#define EXPORT __attribute__((visibility("default")))
#define UINT_OF(function, what)                                                                                        \
    int function(const Device *device, uint *found)                                                                    \
    {                                                                                                                  \
        double value;                                                                                                  \
        ENTER;                                                                                                         \
        int code = number(device, what, &value);                                                                       \
        if (!code)                                                                                                     \
            *found = (uint)value;                                                                                      \
        return code;                                                                                                   \
    }
#define TEXT_OF(function, what)                                                                                        \
    int function(const Device *device, char *found, uint size)                                                         \
    {                                                                                                                  \
        const char *value;                                                                                             \
        ENTER;                                                                                                         \
        int code = ask(device, what, &value);                                                                          \
        if (!code)                                                                                                     \
            snprintf(found, size, "%s", value);                                                                        \
        return code;                                                                                                   \
    }

/* -- the library -------------------------------------------------------------------------------------------- */

int nvmlInitWithFlags(uint flags)
{
    const char *value;
    (void)flags;
    ENTER;
    fakeLoad();
    if (!slot("uptime")->value)
        skipped = 0;
    int code = text("init", &value);
    if (code && code != UNSUPPORTED)
        return code;
    opener = getpid();
    return OK;
}

int nvmlShutdown(void)
{
    ENTER;
    if (getpid() != opener)
        return UNINITIALIZED;
    opener = 0;
    return OK;
}

const char *nvmlErrorString(int code)
{
    static char text[32];
    switch (code) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 11: return "Interrupt Request Issue";
    case 15: return "GPU is lost";
    case 17: return "The operating system has blocked the request.";
    case 18: return "RM has detected an NVML/RM version mismatch.";
    case 999: return "Unknown Error";
    }
    snprintf(text, sizeof text, "Error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *found, uint size)
{
    const char *value;
    ENTER;
    int code = text("driver", &value);
    if (!code)
        snprintf(found, size, "%s", value);
    return code;
}

int nvmlDeviceGetCount_v2(uint *found)
{
    const char *value;
    ENTER;
    if (getpid() != opener)
        return UNINITIALIZED;
    int code = text("count", &value);
    if (!code)
        *found = (uint)atoi(value);
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, const Device **found)
{
    const char *value;
    char key[32];
    ENTER;
    if (index >= GPUS)
        return INVALID;
    snprintf(key, sizeof key, "%u.handle", index);
    int code = text(key, &value);
    *found = &devices[index][0];
    return code == UNSUPPORTED ? OK : code;
}

/* -- a GPU, or an instance ---------------------------------------------------------------------------------- */

TEXT_OF(nvmlDeviceGetUUID, "uuid")
TEXT_OF(nvmlDeviceGetName, "name")
UINT_OF(nvmlDeviceGetMinorNumber, "minor")
UINT_OF(nvmlDeviceGetPowerUsage, "power")
UINT_OF(nvmlDeviceGetEnforcedPowerLimit, "limit")
UINT_OF(nvmlDeviceGetFanSpeed, "fan")

int nvmlDeviceGetTemperatureThreshold(const Device *device, int kind, uint *found)
{
    double value;
    ENTER;
    int code = kind ? UNSUPPORTED : number(device, "shutdown", &value);
    if (!code)
        *found = (uint)value;
    return code;
}

UINT_OF(nvmlDeviceGetNumaNodeId, "numa")
UINT_OF(nvmlDeviceGetMaxMigDeviceCount, "migs")
UINT_OF(nvmlDeviceGetGpuInstanceId, "gi")

#define PERIOD (1 / 6.0) /* seconds of a sample */
#define BUFFER 120      /* samples that the driver keeps */

int nvmlDeviceGetUtilizationRates(const Device *device, Utilization *found)
{
    double gpu, memory, share;
    ENTER;
    int code = number(device, "utilization.gpu", &gpu);
    if (!code && !worked(device, now() - PERIOD, now(), &share))
        gpu = 100 * share + 0.5;
    if (!code)
        code = number(device, "utilization.memory", &memory);
    if (!code)
        *found = (Utilization){(uint)gpu, (uint)memory};
    return code;
}

/* Samples of the utilization since `since` (microseconds), for a device that has a schedule: 0.kernels. */
int nvmlDeviceGetSamples(const Device *device, int kind, ull since, int *type, uint *many, Share *found)
{
    double share, same;
    ENTER;
    const char *value;
    int code = kind == 1 ? worked(device, 0, 1, &share) : UNSUPPORTED;
    if (!code && (code = ask(device, "samples.utilization", &value)) == UNSUPPORTED) /* ...=!3: it has none */
        code = value ? UNSUPPORTED : OK;
    if (code)
        return code;
    if (number(device, "samples.same", &same)) /* so many samples have one time stamp */
        same = 1;
    long long last = (long long)(now() / PERIOD), first = last - BUFFER + 1;
    uint room = found ? *many : 0;
    *many = 0;
    *type = 1;
    for (long long n = first < 1 ? 1 : first; n <= last; n++) {
        ull stamp = (ull)((double)(n - n % (long long)same) * PERIOD * 1e6);
        if (stamp <= since)
            continue;
        if (*many < room) {
            worked(device, (double)(n - 1) * PERIOD, (double)n * PERIOD, &share);
            found[*many].stamp = stamp;
            found[*many].value.ui = (uint)(100 * share + 0.5);
        }
        ++*many;
    }
    return *many ? OK : NOT_FOUND;
}

int nvmlDeviceGetAttributes_v2(const Device *device, Attributes *found)
{
    double slices;
    ENTER;
    int code = number(device, "slices", &slices);
    if (!code)
        *found = (Attributes){.slices = (uint)slices, .compute = (uint)slices};
    return code;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const Device *device, ull *found)
{
    double reasons;
    ENTER;
    int code = number(device, "reasons", &reasons);
    if (!code)
        *found = (ull)reasons;
    return code;
}

static int memory(const Device *device, Memory2 *found)
{
    double total, reserved, used;
    int code = number(device, "memory.total", &total);
    if (!code)
        code = number(device, "memory.reserved", &reserved);
    if (!code)
        code = number(device, "memory.used", &used);
    if (!code) {
        found->total = (ull)total;
        found->reserved = (ull)reserved;
        found->used = (ull)used;
        found->free = found->total - found->reserved - found->used;
    }
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(const Device *device, Memory2 *found)
{
    const char *value;
    ENTER;
    if (found->version != VERSION_MEMORY)
        return VERSION;
    int code = ask(device, "memory.v2", &value); /* 0.memory.v2=!13: a driver that has no second version */
    return code == OK || code == UNSUPPORTED ? memory(device, found) : code;
}

int nvmlDeviceGetMemoryInfo(const Device *device, Memory *found)
{
    Memory2 second;
    ENTER;
    int code = memory(device, &second);
    if (!code)
        *found = (Memory){second.total, second.free, second.used + second.reserved};
    return code;
}

int nvmlDeviceGetTemperature(const Device *device, uint sensor, uint *found)
{
    double value;
    ENTER;
    int code = sensor ? INVALID : number(device, "temperature", &value);
    if (!code)
        *found = (uint)value;
    return code;
}

int nvmlDeviceGetTemperatureV(const Device *device, Temperature *found)
{
    double value;
    ENTER;
    if (found->version != VERSION_TEMPERATURE)
        return VERSION;
    int code = found->sensor ? INVALID : number(device, "temperature_v", &value);
    if (!code)
        found->temperature = (int)value;
    return code;
}

int nvmlDeviceGetClockInfo(const Device *device, uint kind, uint *found)
{
    double value;
    char what[16];
    ENTER;
    snprintf(what, sizeof what, "clock.%u", kind);
    int code = number(device, what, &value);
    if (!code)
        *found = (uint)value;
    return code;
}

static int codec(const Device *device, const char *what, uint *found, uint *period)
{
    double value;
    int code = number(device, what, &value);
    if (!code) {
        *found = (uint)value;
        *period = 167000;
    }
    return code;
}

int nvmlDeviceGetEncoderUtilization(const Device *device, uint *found, uint *period)
{
    ENTER;
    return codec(device, "encoder", found, period);
}

int nvmlDeviceGetDecoderUtilization(const Device *device, uint *found, uint *period)
{
    ENTER;
    return codec(device, "decoder", found, period);
}

/* 0.links=18, and 0.links_down=3 for so many of them that are down; 0.link_fields=0 for a driver without field 165 */
static int link_state(const Device *device, uint link, uint *found)
{
    double links, down = 0;
    int code = number(device, "links", &links);
    if (code)
        return code;
    number(device, "links_down", &down);
    *found = link >= (uint)down;
    return link < (uint)links ? OK : INVALID;
}

int nvmlDeviceGetFieldValues(const Device *device, int many, Field *fields)
{
    const char *value;
    char what[40];
    ENTER;
    int code = ask(device, "fields", &value); /* 0.fields=!999: the whole call fails */
    if (code && code != UNSUPPORTED)
        return code;
    for (int n = 0; n < many; n++) {
        Field *field = &fields[n];
        memset(&field->value, 0xAA, sizeof field->value); /* what a short member leaves is garbage */
        if (field->scope)
            snprintf(what, sizeof what, "field.%u.%d", field->id, (int)field->scope);
        else
            snprintf(what, sizeof what, "field.%u", field->id);
        field->code = ask(device, what, &value);
        if (field->code == UNSUPPORTED && field->id == LINK_STATE && ask(device, "link_fields", &value) == UNSUPPORTED) {
            uint up = 0;
            field->code = link_state(device, field->scope, &up);
            field->type = 1;
            field->value.ui = up;
            continue;
        }
        if (field->code == UNSUPPORTED && field->id == LINK_COUNT)
            field->code = ask(device, "links", &value);
        if (field->code)
            continue;
        double found = parse(value);
        switch (value[strlen(value) - 1]) {
        case 'd': field->type = 0; field->value.d = found; break;
        case 'u': field->type = 1; field->value.ui = (uint)found; break;
        case 'l': field->type = 2; field->value.ul = (unsigned long)found; break;
        case 's': field->type = 5; field->value.si = (int)found; break;
        case 'h': field->type = 6; field->value.us = (unsigned short)found; break;
        default: field->type = 3; field->value.ll = (ull)found;
        }
    }
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(const Device *device, uint index, const Device **found)
{
    const char *value;
    char what[24];
    ENTER;
    if (index >= MIGS)
        return INVALID;
    snprintf(what, sizeof what, "mig.%u.uuid", index);
    int code = ask(device, what, &value);
    *found = &devices[device->gpu][1 + index];
    return code == UNSUPPORTED ? NOT_FOUND : code;
}

/* An instance of a GPU by the driver's number; its handle here is that of its device. */
int nvmlDeviceGetGpuInstanceById(const Device *device, uint id, const Device **found)
{
    double value;
    ENTER;
    for (int n = 1; n <= MIGS; n++) {
        *found = &devices[device->gpu][n];
        if (!number(*found, "gi", &value) && (uint)value == id)
            return OK;
    }
    return NOT_FOUND;
}

int nvmlGpuInstanceGetInfo(const Device *instance, Instance *found)
{
    double profile, slice;
    ENTER;
    int code = number(instance, "profile", &profile);
    if (!code)
        code = number(instance, "slice", &slice);
    if (!code)
        *found = (Instance){NULL, 0, (uint)profile, (uint)slice, 1};
    return code;
}

/* -- faults --------------------------------------------------------------------------------------------------- */

UINT_OF(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
UINT_OF(nvmlDeviceGetMaxPcieLinkWidth, "pcie.width_max")
UINT_OF(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation")
UINT_OF(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.generation_max")
UINT_OF(nvmlDeviceGetDefaultEccMode, "ecc.default")

int nvmlDeviceGetEccMode(const Device *device, uint *now, uint *pending)
{
    double value;
    ENTER;
    int code = number(device, "ecc.now", &value);
    if (!code)
        *now = *pending = (uint)value;
    return code;
}

int nvmlDeviceGetSramEccErrorStatus(const Device *device, Sram *found)
{
    double over, uncorrected = 0, bucket;
    char what[24];
    ENTER;
    int code = number(device, "sram.over", &over);
    if (!code && (code = number(device, "sram.uncorrected", &uncorrected)) == UNSUPPORTED)
        code = OK;
    if (!code) {
        found->over = (uint)over;
        found->parity = (ull)uncorrected;
        for (int n = 0; n < 5; n++) { /* L2, SM, PCIe, MCU, other */
            snprintf(what, sizeof what, "sram.bucket.%d", n);
            found->buckets[n] = number(device, what, &bucket) ? 0 : (ull)bucket;
        }
    }
    return code;
}

int nvmlDeviceGetMemoryErrorCounter(const Device *device, int kind, int since, int place, ull *found)
{
    double value;
    ENTER;
    int code = kind != 1 || since != 0 || place != 2 ? INVALID : number(device, "dram.uncorrected", &value);
    if (!code)
        *found = (ull)value;
    return code;
}

/* max, high, partial, low, none: banks by the rows that they have to spare; 0.spare is the number of the last ones */
int nvmlDeviceGetRowRemapperHistogram(const Device *device, uint *found)
{
    double none;
    ENTER;
    int code = number(device, "spare", &none);
    if (!code) {
        found[0] = 640 - (uint)none;
        found[1] = found[2] = found[3] = 0;
        found[4] = (uint)none;
    }
    return code;
}

int nvmlDeviceGetVirtualizationMode(const Device *device, uint *found)
{
    double value;
    ENTER;
    int code = number(device, "virtual", &value);
    if (!code)
        *found = (uint)value;
    return code;
}

/* nvmlGridLicensableFeatures_t of nvml.h 13: 0.licence is a digit for each feature, whether it is on. */
typedef struct {
    int applies;
    uint many;
    struct {
        uint code, state;
        char info[128], product[128];
        uint enabled, year;
        unsigned short time[5];
        unsigned char status;
    } features[3];
} Licences;

int nvmlDeviceGetGridLicensableFeatures_v4(const Device *device, Licences *found)
{
    const char *value;
    ENTER;
    int code = ask(device, "licence", &value);
    if (code)
        return code;
    found->applies = 1;
    found->many = (uint)strlen(value);
    for (uint n = 0; n < found->many && n < 3; n++)
        found->features[n].state = (uint)(value[n] - '0');
    return 0;
}

/* 0.vgpus is a digit for each vGPU, whether it has a licence; its number is its place, after 3251634176. */
int nvmlDeviceGetActiveVgpus(const Device *device, uint *many, uint *found)
{
    const char *value;
    ENTER;
    int code = ask(device, "vgpus", &value);
    if (code)
        return code;
    uint there = (uint)strlen(value), room = *many;
    *many = there;
    if (room < there)
        return 7;
    for (uint n = 0; n < there; n++)
        found[n] = 3251634176u + n;
    return 0;
}

int nvmlVgpuInstanceGetLicenseInfo_v2(uint vgpu, unsigned char *found)
{
    const char *value;
    ENTER;
    int code = ask(&devices[0][0], "vgpus", &value);
    if (!code)
        *found = (unsigned char)(value[vgpu - 3251634176u] - '0');
    return code;
}

int nvmlDeviceGetRepairStatus(const Device *device, uint *found)
{
    double value;
    ENTER;
    int code = number(device, "repair", &value); /* 1 channel, 2 TPC */
    if (!code) {
        found[1] = (uint)value & 1;
        found[2] = (uint)value >> 1;
    }
    return code;
}

int nvmlDeviceGetUnrepairableMemoryFlag_v1(const Device *device, uint *found)
{
    double value;
    ENTER;
    int code = number(device, "unrepairable", &value);
    if (!code)
        found[1] = (uint)value;
    return code;
}

int nvmlDeviceGetGpuFabricInfoV(const Device *device, Fabric *found)
{
    double state, status = 0, mask = 0, summary = 0, version = 3, clique = 0, cluster = 0;
    ENTER;
    int code = number(device, "fabric.state", &state);
    if (code)
        return code;
    number(device, "fabric.version", &version); /* the latest that this driver knows */
    if (found->version >> 24 > (uint)version)
        return VERSION;
    number(device, "fabric.status", &status);
    number(device, "fabric.mask", &mask);
    number(device, "fabric.summary", &summary);
    number(device, "fabric.clique", &clique);
    number(device, "fabric.cluster", &cluster); /* the last byte of its UUID */
    memset(found->cluster, 0, sizeof found->cluster);
    found->cluster[15] = (unsigned char)cluster;
    found->clique = (uint)clique;
    found->state = (unsigned char)state;
    found->status = (int)status;
    found->mask = (uint)mask;
    if (found->version >> 24 > 2)
        found->summary = (unsigned char)summary;
    return OK;
}

int nvmlDeviceGetNvLinkState(const Device *device, uint link, uint *found)
{
    ENTER;
    return link_state(device, link, found);
}

int nvmlDeviceGetMarginTemperature(const Device *device, Margin *found)
{
    double value;
    ENTER;
    if (found->version != VERSION_MARGIN)
        return VERSION;
    int code = number(device, "margin", &value);
    if (!code)
        found->margin = (int)value;
    return code;
}

/* -- processes: 0.processes=11327:2690646016,11345:!   (PID:BYTES, ! for not available) ------------------------ */

static int list(const Device *device, const char *what, uint *many, Process *found)
{
    const char *value;
    int code = ask(device, what, &value);
    if (code == UNSUPPORTED) {
        *many = 0;
        return OK;
    }
    if (code)
        return code;
    uint room = *many;
    *many = 0;
    for (const char *part = value; part && *part; part = strchr(part, ','), part = part ? part + 1 : NULL) {
        const char *bytes = strchr(part, ':') + 1;
        if (found && *many < room)
            found[*many] = (Process){(uint)atoi(part), *bytes == '!' ? ~0ull : strtoull(bytes, NULL, 10), ~0u, ~0u};
        ++*many;
    }
    return *many > room ? SHORT : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const Device *device, uint *many, Process *found)
{
    ENTER;
    return list(device, "processes", many, found);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(const Device *device, uint *many, Process *found)
{
    ENTER;
    return list(device, "graphics", many, found);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(const Device *device, uint *many, Process *found)
{
    ENTER;
    return list(device, "mps", many, found);
}

/*
 * 0.samples=11345:1000:99   (PID:TIME STAMP:PERCENT), those that are newer than what was asked for
 * 0.parts=11345:70,11346:30 (PID:PERCENT of the kernels of the schedule), averaged since what was asked for
 */
int nvmlDeviceGetProcessUtilization(const Device *device, Sample *found, uint *many, ull since)
{
    const char *value;
    ENTER;
    int scheduled = !ask(device, "parts", &value), code = scheduled ? OK : ask(device, "samples", &value);
    if (code)
        return code;
    double share = 0;
    if (scheduled)
        worked(device, (double)since / 1e6, now(), &share);
    uint room = found ? *many : 0;
    *many = 0;
    for (const char *part = value; part && *part; part = strchr(part, ','), part = part ? part + 1 : NULL) {
        uint pid, sm;
        ull stamp;
        if (scheduled && sscanf(part, "%u:%u", &pid, &sm) == 2) {
            stamp = (ull)(now() * 1e6);
            if (!(sm = (uint)(sm * share + 0.5)))
                continue; /* the driver has those alone that ran */
        } else if (sscanf(part, "%u:%llu:%u", &pid, &stamp, &sm) != 3 || stamp <= since)
            continue;
        if (*many < room)
            found[*many] = (Sample){pid, stamp, sm, 0, 0, 0};
        ++*many;
    }
    return !*many ? NOT_FOUND : *many > room ? SHORT : OK;
}

/* -- GPM: 0.gpm.2=98.5, and a snapshot is a count, so that any two of them differ ------------------------------ */

int nvmlGpmQueryDeviceSupport(const Device *device, Support *found)
{
    double value;
    ENTER;
    if (found->version != 1)
        return VERSION;
    int code = number(device, "gpm.supported", &value);
    if (!code)
        found->supported = (uint)value;
    return code;
}

typedef struct { const Device *device; ull order; double at; } Snapshot;

int nvmlGpmSampleAlloc(Snapshot **found)
{
    ENTER;
    *found = calloc(1, sizeof **found);
    return OK;
}

int nvmlGpmSampleFree(Snapshot *snapshot)
{
    ENTER;
    free(snapshot);
    return OK;
}

static int take(const Device *device, Snapshot *snapshot)
{
    static ull order;
    const char *value;
    int code = ask(device, "gpm.sample", &value);
    if (code && code != UNSUPPORTED)
        return code;
    *snapshot = (Snapshot){device, ++order, now()};
    return OK;
}

int nvmlGpmSampleGet(const Device *device, Snapshot *snapshot)
{
    ENTER;
    return take(device, snapshot);
}

int nvmlGpmMigSampleGet(const Device *device, uint instance, Snapshot *snapshot)
{
    double value;
    ENTER;
    for (int n = 1; n <= MIGS; n++)
        if (!number(&devices[device->gpu][n], "gi", &value) && (uint)value == instance)
            return take(&devices[device->gpu][n], snapshot);
    return INVALID;
}

int nvmlGpmMetricsGet(Metrics *asked)
{
    double value;
    char what[16];
    ENTER;
    const Snapshot *first = asked->first, *second = asked->second;
    if (asked->version != 1 || !first || !second || !first->order || first->order >= second->order)
        return INVALID;
    for (uint n = 0; n < asked->many; n++) {
        Metric *metric = &asked->metrics[n];
        snprintf(what, sizeof what, "gpm.%u", metric->id);
        if (metric->id == 1 && !worked(second->device, first->at, second->at, &value)) {
            metric->code = OK;
            value *= 100;
        } else
            metric->code = number(second->device, what, &value);
        if (!metric->code)
            metric->value = value;
    }
    return OK;
}

/* -- events: events=0:79,1:13,0:0:32768   (GPU:XID:TYPE, 8 unless told), once each ----------------------------------------------------------- */

static ull registered[GPUS];

int nvmlDeviceGetSupportedEventTypes(const Device *device, ull *found)
{
    double value = 0x1f;
    ENTER;
    int code = number(device, "events", &value);
    *found = (ull)value;
    return code == UNSUPPORTED ? OK : code;
}

int nvmlEventSetCreate(void **found)
{
    static int set;
    ENTER;
    *found = &set;
    return OK;
}

int nvmlDeviceRegisterEvents(const Device *device, ull kinds, void *set)
{
    double refused;
    (void)set;
    ENTER;
    if (!number(device, "events_refused", &refused) && kinds & (ull)refused)
        return INVALID;
    registered[device->gpu] = kinds;
    return OK;
}

int nvmlEventSetWait_v2(void *set, Event *found, uint milliseconds)
{
    const char *value;
    ENTER;
    if (!set || getpid() != opener)
        return UNINITIALIZED;
    int code = text("wait", &value);
    if (code && code != UNSUPPORTED)
        return code;
    while (events && *events) {
        int gpu = 0;
        ull xid = 0, type = 8;
        sscanf(events, "%d:%llu:%llu", &gpu, &xid, &type);
        char *next = strchr(events, ',');
        memmove(events, next ? next + 1 : "", next ? strlen(next) : 1);
        if (!(registered[gpu] & type))
            continue;
        *found = (Event){&devices[gpu][0], type, xid, ~0u, ~0u};
        return OK;
    }
    usleep(milliseconds * 1000);
    return TIMEOUT;
}

int nvmlEventSetFree(void *set)
{
    (void)set;
    ENTER;
    memset(registered, 0, sizeof registered);
    return OK;
}
