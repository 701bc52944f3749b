// An empty source: precompiled.h is compiled with it, and the result serves all other sources.
