"""
Calls functions of macOS by ctypes, and releases the objects that they return.

We own the result of a function whose name has Create or Copy. The result of a function with Get lives as long as
the object that it came from. An argument that is NULL or has a wrong type would crash the process, so both are
checked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from chipwatch.contract.errors import Unavailable

REF: Final = ctypes.c_void_p
INDEX: Final = ctypes.c_long
"""CFIndex; also used for CFTypeID, which is unsigned but small."""
Functions = Mapping[str, tuple[Any, ...]]
"""Name of a function -> types of its result and its arguments."""
UTF8: Final = 0x08000100
INT64: Final = 4
"""kCFNumberSInt64Type."""
MAX_TEXT: Final = 256
"""Most bytes of a text; the longest one that is needed has 29."""
CORE: Final[Functions] = {
    "CFRelease": (None, REF),
    "CFGetTypeID": (INDEX, REF),
    "CFStringGetTypeID": (INDEX,),
    "CFNumberGetTypeID": (INDEX,),
    "CFDataGetTypeID": (INDEX,),
    "CFArrayGetTypeID": (INDEX,),
    "CFDictionaryGetTypeID": (INDEX,),
    "CFStringCreateWithCString": (REF, REF, ctypes.c_char_p, ctypes.c_uint32),
    "CFStringGetCString": (ctypes.c_ubyte, REF, ctypes.c_char_p, INDEX, ctypes.c_uint32),
    "CFNumberGetValue": (ctypes.c_ubyte, REF, INDEX, REF),
    "CFDataGetLength": (INDEX, REF),
    "CFDataGetBytePtr": (REF, REF),
    "CFArrayGetCount": (INDEX, REF),
    "CFArrayGetValueAtIndex": (REF, REF, INDEX),
    "CFArrayCreateMutable": (REF, REF, INDEX, REF),
    "CFArrayAppendValue": (None, REF, REF),
    "CFDictionaryGetValue": (REF, REF, REF),
    "CFDictionaryCreateMutableCopy": (REF, REF, INDEX, REF),
    "CFDictionarySetValue": (None, REF, REF, REF),
}
POOL: Final[Functions] = {"objc_autoreleasePoolPush": (REF,), "objc_autoreleasePoolPop": (None, REF)}


class Libraries(NamedTuple):
    """Paths of libraries. macOS loads them from a cache, so the files need not exist."""

    core: str = "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation"
    iokit: str = "/System/Library/Frameworks/IOKit.framework/IOKit"
    report: str = "/usr/lib/libIOReport.dylib"
    objc: str = "/usr/lib/libobjc.A.dylib"
    system: str = "/usr/lib/libSystem.B.dylib"


def bind(path: str, functions: Functions) -> Any:
    """Load functions of a library and set their types; raise Unavailable if any is absent."""
    try:
        library = ctypes.CDLL(path)
        bound = {name: library[name] for name in functions}
    except (OSError, AttributeError) as problem:
        raise Unavailable(f"{path} cannot be used: {problem}") from problem
    for name, (returned, *taken) in functions.items():
        bound[name].restype, bound[name].argtypes = returned, taken
    return SimpleNamespace(**bound, library=library)


class Foundation:
    """The library CoreFoundation; used by one thread."""

    def __init__(self, libraries: Libraries) -> None:
        """Load the library; raise Unavailable."""
        self._cf = bind(libraries.core, CORE)
        self._objc = bind(libraries.objc, POOL)
        try:
            callbacks = ctypes.c_byte.in_dll(self._cf.library, "kCFTypeArrayCallBacks")
        except ValueError as problem:
            raise Unavailable(f"{libraries.core} cannot be used: {problem}") from problem
        self._array_callbacks = ctypes.addressof(callbacks)
        self._strings: dict[str, int] = {}
        self._kept: list[int] = []
        self._buffer = ctypes.create_string_buffer(MAX_TEXT)

    @contextmanager
    def scope(self) -> Iterator[Callable[[int | None], int | None]]:
        """
        Yield a function that returns its argument and releases it at the end of the block; NULL is allowed.

        Objects that macOS autoreleases within the block are released at its end, too.
        """
        with ExitStack() as stack:
            stack.callback(self._objc.objc_autoreleasePoolPop, self._objc.objc_autoreleasePoolPush())

            def own(ref: int | None) -> int | None:
                stack.callback(self.release, ref)
                return ref

            yield own

    def keep(self, ref: int | None) -> int | None:
        """Return `ref`, and release it at `close`; NULL is allowed."""
        self._kept += [ref] if ref else []
        return ref

    def release(self, ref: int | None) -> None:
        """Release an object that we own; ignore NULL."""
        if ref:
            self._cf.CFRelease(ref)

    def close(self) -> None:
        """Release the kept objects; safe to call twice."""
        self._strings.clear()
        while self._kept:
            self.release(self._kept.pop())

    def string(self, text: str) -> int | None:
        """Return `text` as a CFString, cached until `close`; NULL if out of memory."""
        if text not in self._strings:
            if not (ref := self.keep(self._cf.CFStringCreateWithCString(None, text.encode(), UTF8))):
                return None
            self._strings[text] = ref
        return self._strings[text]

    def text(self, ref: int | None) -> str:
        """Return the text of a CFString, stripped; "" for NULL, another type, or a text that is too long."""
        if not self._is(ref, "String") or not self._cf.CFStringGetCString(ref, self._buffer, MAX_TEXT, UTF8):
            return ""
        return self._buffer.value.decode(errors="replace").strip()

    def number(self, ref: int | None) -> int | None:
        """Return the integer of a CFNumber; None for NULL or another type."""
        value = ctypes.c_int64()
        known = self._is(ref, "Number") and self._cf.CFNumberGetValue(ref, INT64, ctypes.byref(value))
        return value.value if known else None

    def data(self, ref: int | None) -> bytes:
        """Return the bytes of a CFData; b"" for NULL or another type."""
        if not self._is(ref, "Data"):
            return b""
        length, start = self._cf.CFDataGetLength(ref), self._cf.CFDataGetBytePtr(ref)
        return ctypes.string_at(start, length) if start and length > 0 else b""

    def value(self, dictionary: int | None, key: str) -> int | None:
        """Return the value of `key` in a CFDictionary, which keeps ownership; None if absent."""
        if not self._is(dictionary, "Dictionary") or not (string := self.string(key)):
            return None
        ref: int | None = self._cf.CFDictionaryGetValue(dictionary, string)
        return ref

    def dictionaries(self, array: int | None) -> Iterator[int]:
        """Yield the dictionaries in a CFArray, which keeps ownership."""
        if self._is(array, "Array"):
            for n in range(self._cf.CFArrayGetCount(array)):
                ref = self._cf.CFArrayGetValueAtIndex(array, n)
                if self._is(ref, "Dictionary"):
                    yield ref

    def altered(self, dictionary: int, key: str, refs: list[int]) -> int | None:
        """Return a copy of a CFDictionary with an array of `refs` under `key`; we own it. NULL on failure."""
        with self.scope() as own:
            string = self.string(key)
            array = own(self._cf.CFArrayCreateMutable(None, 0, self._array_callbacks))
            if not string or not array:
                return None
            copy: int | None = self._cf.CFDictionaryCreateMutableCopy(None, 0, dictionary)
            if copy:
                for ref in refs:
                    self._cf.CFArrayAppendValue(array, ref)
                self._cf.CFDictionarySetValue(copy, string, array)
            return copy

    def _is(self, ref: int | None, kind: str) -> bool:
        """Return True if `ref` is an object of the type CF`kind`."""
        return bool(ref) and self._cf.CFGetTypeID(ref) == getattr(self._cf, f"CF{kind}GetTypeID")()
