"""Azure's storage emulator: the tests of uploads run over it by ``make azure``."""
