"""A program of its own: asks an X server how long there was no input, prints milliseconds.

Xlib ends the whole process when the server goes away, and waits for ever for one that hangs. So it is never loaded
into a loop: `x11.py` runs this file, with a limit. It imports nothing of turnwise and starts in hundredths of a second.
"""

import ctypes
import ctypes.util
import sys


class _ScreenSaverInfo(ctypes.Structure):
    _fields_ = [
        ("window", ctypes.c_ulong),
        ("state", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("til_or_since", ctypes.c_ulong),
        ("idle", ctypes.c_ulong),
        ("event_mask", ctypes.c_ulong),
    ]


def _library(name: str, soname: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(soname)
    except OSError:
        sys.exit(f"the library {name} is not installed (Debian: {name.lower()})")


def main() -> None:
    x11, xss = _library("libX11-6", "libX11.so.6"), _library("libXss1", "libXss.so.1")
    x11.XOpenDisplay.restype = ctypes.c_void_p
    x11.XOpenDisplay.argtypes = [ctypes.c_char_p]
    x11.XDefaultRootWindow.restype = ctypes.c_ulong
    x11.XDefaultRootWindow.argtypes = [ctypes.c_void_p]
    xss.XScreenSaverQueryExtension.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    xss.XScreenSaverQueryInfo.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p]
    display = x11.XOpenDisplay(None)
    if not display:
        sys.exit("the display cannot be opened")
    first_event, first_error, info = ctypes.c_int(), ctypes.c_int(), _ScreenSaverInfo()
    if not xss.XScreenSaverQueryExtension(display, ctypes.byref(first_event), ctypes.byref(first_error)):
        sys.exit("the display has no MIT-SCREEN-SAVER extension, which counts the time without input")
    if not xss.XScreenSaverQueryInfo(display, x11.XDefaultRootWindow(display), ctypes.byref(info)):
        sys.exit("the display does not say how long there was no input")
    print(info.idle)


if __name__ == "__main__":
    main()
