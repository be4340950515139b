//! The one place that knows how values become bytes and back. Bounded: hostile bytes can not make it allocate without end.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most bytes a decoded value may take.
const MOST: usize = 1 << 26;

const fn config() -> Configuration<LittleEndian, Fixint, Limit<MOST>> {
    bincode::config::standard().with_fixed_int_encoding().with_limit::<MOST>()
}

/// The bytes of a value.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, config()).expect("what we encode is within the limit")
}

/// The value of these bytes, all of them; or what is wrong with them.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match bincode::serde::decode_from_slice(bytes, config()) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok((_, used)) => Err(format!("{} bytes too many after byte {used}", bytes.len() - used)),
        Err(error) => Err(error.to_string()),
    }
}

/// A check over bytes, to find torn or damaged ones. Not for secrets.
pub fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
