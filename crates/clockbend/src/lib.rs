//! Shifts and bends the wall clock of one process: a library to preload.
//!
//! `LD_PRELOAD=libfencepost_clockbend.so CLOCKBEND_FILE=path redis-server …` answers
//! `gettimeofday`, `clock_gettime(CLOCK_REALTIME)` and `time` by the real clock bent as the file
//! says, which may change while the process runs. Without a file, or with one that is too short,
//! nothing is bent. It is for Linux on 64 bits.
//!
//! The file is four little numbers in the machine's byte order, eight bytes each: a sequence number
//! that is odd while the others are being written, and zero before; then an anchor, an offset and a
//! rate. At the real time `anchor`, in nanoseconds since 1970, the clock shows `anchor + offset`;
//! from there it shows `rate` nanoseconds to pass in a real second.
//!
//! It must never touch the monotonic clocks, never allocate and never take a lock: a server calls
//! it before its allocator is ready, and from signal handlers.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering, fence};

const CLOCK_REALTIME: c_int = 0;
const CLOCK_REALTIME_COARSE: c_int = 5;
#[cfg(target_arch = "x86_64")]
const SYS_CLOCK_GETTIME: c_long = 228;
#[cfg(not(target_arch = "x86_64"))]
const SYS_CLOCK_GETTIME: c_long = 113;
const O_RDONLY: c_int = 0;
const O_CLOEXEC: c_int = 0o2_000_000;
const PROT_READ: c_int = 1;
const MAP_SHARED: c_int = 1;
const SEEK_END: c_int = 2;

const NANOS: i64 = 1_000_000_000;
/// How often a reader that meets a writer looks again, before it takes the time as it is.
const MOST_LOOKS: usize = 1000;

/// `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Timespec {
    seconds: i64,
    nanos: i64,
}

/// `struct timeval`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Timeval {
    seconds: i64,
    micros: i64,
}

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn lseek(file: c_int, offset: i64, whence: c_int) -> i64;
    fn mmap(
        at: *mut c_void,
        len: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        from: i64,
    ) -> *mut c_void;
    fn close(file: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// How the clock is bent: at the real time `anchor` it shows `anchor + offset`, and from there it
/// runs at `rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bend {
    /// Nanoseconds since 1970 by the real clock.
    anchor: i64,
    /// Nanoseconds.
    offset: i64,
    /// Nanoseconds that it shows to pass in a real second.
    rate: i64,
}

impl Bend {
    fn shown(self, real: i64) -> i64 {
        let since = i128::from(real) - i128::from(self.anchor);
        let bent = since * i128::from(self.rate) / i128::from(NANOS);
        let shown = i128::from(self.anchor) + i128::from(self.offset) + bent;
        // The time before 1970 is of no use to anybody.
        i64::try_from(shown.max(0)).unwrap_or(i64::MAX)
    }
}

/// The file, as it lies in memory.
#[repr(C)]
struct Shared {
    sequence: AtomicU64,
    anchor: AtomicI64,
    offset: AtomicI64,
    rate: AtomicI64,
}

impl Shared {
    fn read(&self) -> Option<Bend> {
        for _ in 0..MOST_LOOKS {
            let before = self.sequence.load(Ordering::Acquire);
            let bend = Bend {
                anchor: self.anchor.load(Ordering::Relaxed),
                offset: self.offset.load(Ordering::Relaxed),
                rate: self.rate.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            let whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
            if whole {
                return (before != 0).then_some(bend);
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// Null: not looked for. [`nobody`]: there is none.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

fn nobody() -> *mut Shared {
    ptr::without_provenance_mut(usize::MAX)
}

fn shared() -> Option<&'static Shared> {
    let mut at = SHARED.load(Ordering::Acquire);
    if at.is_null() {
        // Whoever is first looks; meanwhile, and if the look calls us, nothing is bent.
        if SHARED
            .compare_exchange(at, nobody(), Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return None;
        }
        at = map().unwrap_or_else(nobody);
        SHARED.store(at, Ordering::Release);
    }
    if at == nobody() {
        return None;
    }
    // SAFETY: it is a mapping of at least that many bytes, page-aligned, and never unmapped. All
    // fields are atomics, so that another process may write them.
    Some(unsafe { &*at })
}

fn map() -> Option<*mut Shared> {
    // SAFETY: the name ends with a zero.
    let path = unsafe { getenv(c"CLOCKBEND_FILE".as_ptr()) };
    if path.is_null() {
        return None;
    }
    // SAFETY: the environment's strings end with a zero.
    let file = unsafe { open(path, O_RDONLY | O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    let len = size_of::<Shared>();
    // SAFETY: a file that was just opened; reading beyond its end would be a fault, so its length
    // is looked at first.
    let long_enough = unsafe { lseek(file, 0, SEEK_END) } >= len as i64;
    let at = if long_enough {
        // SAFETY: a new mapping, at a place of the kernel's choice.
        unsafe { mmap(ptr::null_mut(), len, PROT_READ, MAP_SHARED, file, 0) }
    } else {
        ptr::without_provenance_mut(usize::MAX)
    };
    // SAFETY: ours, and closed once. The mapping stays.
    unsafe { close(file) };
    (at.addr() != usize::MAX).then_some(at.cast())
}

/// The kernel's answer, and what the C library would return.
fn real(clock: c_int, time: *mut Timespec) -> c_int {
    // SAFETY: the kernel checks the pointer.
    unsafe { syscall(SYS_CLOCK_GETTIME, c_long::from(clock), time) as c_int }
}

/// Nanoseconds since 1970, bent.
fn bent_now() -> i64 {
    let mut time = Timespec::default();
    real(CLOCK_REALTIME, &raw mut time);
    let real = time.seconds * NANOS + time.nanos;
    match shared().and_then(Shared::read) {
        Some(bend) => bend.shown(real),
        None => real,
    }
}

/// As in the C library.
///
/// # Safety
/// `time` points to a `struct timespec`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    if !matches!(clock, CLOCK_REALTIME | CLOCK_REALTIME_COARSE) || time.is_null() {
        return real(clock, time);
    }
    let now = bent_now();
    // SAFETY: the caller's word; null was looked for.
    unsafe {
        *time = Timespec {
            seconds: now / NANOS,
            nanos: now % NANOS,
        };
    }
    0
}

/// As in the C library. Time zones are left alone, as the C library leaves them.
///
/// # Safety
/// `time` points to a `struct timeval`, or is null.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn gettimeofday(time: *mut Timeval, _zone: *mut c_void) -> c_int {
    let now = bent_now();
    if !time.is_null() {
        // SAFETY: the caller's word; null was looked for.
        unsafe {
            *time = Timeval {
                seconds: now / NANOS,
                micros: now % NANOS / 1000,
            };
        }
    }
    0
}

/// As in the C library.
///
/// # Safety
/// `time` points to a `time_t`, or is null.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn time(time: *mut i64) -> i64 {
    let seconds = bent_now() / NANOS;
    if !time.is_null() {
        // SAFETY: the caller's word; null was looked for.
        unsafe { *time = seconds };
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400 * NANOS;

    #[test]
    fn a_jump_moves_the_clock_and_a_rate_bends_it_from_there() {
        let bend = Bend {
            anchor: 20_000 * DAY,
            offset: 5 * NANOS,
            rate: 2 * NANOS,
        };
        assert_eq!(bend.shown(bend.anchor), bend.anchor + 5 * NANOS);
        assert_eq!(bend.shown(bend.anchor + NANOS), bend.anchor + 7 * NANOS);
        let back = Bend {
            offset: -30_000 * DAY,
            ..bend
        };
        assert_eq!(back.shown(bend.anchor), 0, "not before 1970");
    }

    #[test]
    fn what_is_half_written_or_was_never_written_bends_nothing() {
        let shared = Shared {
            sequence: AtomicU64::new(0),
            anchor: AtomicI64::new(1),
            offset: AtomicI64::new(2),
            rate: AtomicI64::new(3),
        };
        assert_eq!(shared.read(), None);
        shared.sequence.store(1, Ordering::Relaxed);
        assert_eq!(shared.read(), None);
        shared.sequence.store(2, Ordering::Relaxed);
        let written = Bend {
            anchor: 1,
            offset: 2,
            rate: 3,
        };
        assert_eq!(shared.read(), Some(written));
    }

    #[test]
    fn without_a_file_the_clock_is_the_real_one() {
        let mut seen = Timespec::default();
        // SAFETY: a timespec of our own.
        assert_eq!(unsafe { clock_gettime(CLOCK_REALTIME, &raw mut seen) }, 0);
        let mut plain = Timespec::default();
        real(CLOCK_REALTIME, &raw mut plain);
        assert!(plain.seconds - seen.seconds <= 1);
        // SAFETY: null is allowed.
        assert!(unsafe { time(ptr::null_mut()) } - plain.seconds <= 1);
        let mut day = Timeval::default();
        // SAFETY: a timeval of our own.
        assert_eq!(unsafe { gettimeofday(&raw mut day, ptr::null_mut()) }, 0);
        assert!(day.seconds - plain.seconds <= 1);
    }
}
