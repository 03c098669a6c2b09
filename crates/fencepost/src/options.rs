//! The options of a request, one by one: the same words for everything that can be asked for, written
//! down once.

/// Methods that set options by way of the type's own `set`, which changes what they are kept in.
macro_rules! option_methods {
    ($($method:ident),+) => {
        $(option_methods!(@ $method);)+
    };
    (@ options) => {
        /// All options at once.
        pub fn options(self, options: $crate::LockOptions) -> Self {
            self.set(|inner| inner.options(options))
        }
    };
    (@ ttl) => {
        /// See [`LockOptions::ttl`](crate::LockOptions::ttl).
        pub fn ttl(self, ttl: std::time::Duration) -> Self {
            self.set(|inner| inner.ttl(ttl))
        }
    };
    (@ timeout) => {
        /// See [`LockOptions::timeout`](crate::LockOptions::timeout).
        pub fn timeout(self, at_most: std::time::Duration) -> Self {
            self.set(|inner| inner.timeout(at_most))
        }
    };
    (@ fair) => {
        /// See [`LockOptions::fair`](crate::LockOptions::fair).
        pub fn fair(self, fair: bool) -> Self {
            self.set(|inner| inner.fair(fair))
        }
    };
    (@ renew) => {
        /// See [`LockOptions::renew`](crate::LockOptions::renew).
        pub fn renew(self, renew: bool) -> Self {
            self.set(|inner| inner.renew(renew))
        }
    };
    (@ max_hold) => {
        /// See [`LockOptions::max_hold`](crate::LockOptions::max_hold).
        pub fn max_hold(self, time: std::time::Duration) -> Self {
            self.set(|inner| inner.max_hold(time))
        }
    };
    (@ max_renewals) => {
        /// See [`LockOptions::max_renewals`](crate::LockOptions::max_renewals).
        pub fn max_renewals(self, times: u32) -> Self {
            self.set(|inner| inner.max_renewals(times))
        }
    };
}

pub(crate) use option_methods;
