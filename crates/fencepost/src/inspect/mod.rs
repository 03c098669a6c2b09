//! What can be seen of locks without taking part: of one ([`status`]), of all ([`list`]), and of several
//! at once, for those who decide by it ([`look`]).

pub(crate) mod list;
pub(crate) mod look;
pub(crate) mod queue;
pub(crate) mod status;
