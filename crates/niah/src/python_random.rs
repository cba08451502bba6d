//! CPython's `random.Random(seed)` for the two calls the dataset makes: `randint` and `choice`.
//!
//! Source: CPython 3.11 `Lib/random.py` and `Modules/_randommodule.c`; goldens `random_primitives`.

use rand_mt::Mt;

/// MT19937 seeded as CPython seeds it from an integer.
pub(crate) struct PythonRandom(Mt);

impl PythonRandom {
    /// `random.Random(seed)`: init_by_array of |seed| as little-endian 32-bit words (so −42 and 42 are one stream).
    pub(crate) fn new(seed: i64) -> Self {
        let magnitude = seed.unsigned_abs();
        let (low, high) = (magnitude as u32, (magnitude >> 32) as u32);
        Self(if high == 0 { Mt::new_with_key([low]) } else { Mt::new_with_key([low, high]) })
    }

    /// `getrandbits(bits)` for 1 ≤ bits ≤ 32.
    fn bits(&mut self, bits: u32) -> u32 {
        self.0.next_u32() >> (32 - bits)
    }

    /// `_randbelow(n)`: rejection sampling; draws even for n = 1.
    fn below(&mut self, n: u32) -> u32 {
        let bits = u32::BITS - n.leading_zeros();
        loop {
            let drawn = self.bits(bits);
            if drawn < n {
                return drawn;
            }
        }
    }

    /// `randint(low, high)`, both ends included; `low ≤ high`.
    pub(crate) fn randint(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// `choice(items)`; `items` is not empty.
    pub(crate) fn choice<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u32) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Values of CPython 3.11.7: random.Random(42).getrandbits(32) and so on.
    #[test]
    fn first_words_equal_cpython() {
        let mut r = PythonRandom::new(42);
        assert_eq!([r.bits(32), r.bits(32)], [2_746_317_213, 478_163_327]);
        assert_eq!(PythonRandom::new(0).bits(32), 3_626_764_237);
        assert_eq!(PythonRandom::new((1 << 32) + 5).bits(32), 675_479_763);
        assert_eq!(PythonRandom::new(-42).bits(32), 2_746_317_213);
    }

    #[test]
    fn a_range_of_one_value_still_draws() {
        let mut r = PythonRandom::new(42);
        assert_eq!(r.randint(5, 5), 5);
        assert_eq!(r.bits(32), 107_420_369);
    }
}
