"""Which steps are typical? (spec §8)"""
