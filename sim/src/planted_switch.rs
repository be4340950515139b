//! Switches a planted bug on. There is none in what ships; the copy that [`bugs::plant`](crate::bugs::plant) makes has
//! another file in this place.

/// Switches this bug on; false if there is none of this name.
pub fn switch(_name: &str) -> bool {
    false
}
