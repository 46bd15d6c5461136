"""Any bytes give a verdict with a reason, in bounded time and memory: tried by a fuzzer guided by coverage."""
