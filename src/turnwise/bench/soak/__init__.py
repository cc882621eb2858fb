"""The soak: the real program under load while everything that may happen to it happens, and what is left afterwards.

``run`` plays it. ``load`` are the clients, ``faults`` what is done to the program, ``stage`` where it runs, ``memory``
how much it takes, ``checks`` what must be true at the end. Nothing here calls into the program: it is started, asked
and ended from outside, and its journal is read when it has ended.
"""
