// Stands for all sources that share precompiled.h.
