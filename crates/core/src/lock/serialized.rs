//! How tokens and values are written in the stored state of a lock. The words themselves are public,
//! and have the traits of serde only with the feature of that name.

/// A token as a number.
pub(super) mod token {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::words::token::FencingToken;

    pub(in crate::lock) fn serialize<S: Serializer>(
        token: &FencingToken,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_u64(token.get())
    }

    pub(in crate::lock) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<FencingToken, D::Error> {
        FencingToken::try_from(u64::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A value as text.
pub(super) mod value {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::words::value::AttemptValue;

    pub(in crate::lock) fn serialize<S: Serializer>(
        value: &AttemptValue,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.as_str())
    }

    pub(in crate::lock) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<AttemptValue, D::Error> {
        String::deserialize(from).map(AttemptValue::reported)
    }
}

pub(super) mod values {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::words::value::AttemptValue;

    pub(in crate::lock) fn serialize<S: Serializer>(
        values: &[AttemptValue],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(AttemptValue::as_str))
    }

    pub(in crate::lock) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<AttemptValue>, D::Error> {
        let values = Vec::<String>::deserialize(from)?;
        Ok(values.into_iter().map(AttemptValue::reported).collect())
    }
}

/// Values, and until when each is refused.
pub(super) mod tombstones {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::words::value::AttemptValue;

    pub(in crate::lock) fn serialize<S: Serializer>(
        tombstones: &[(AttemptValue, Duration)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            tombstones
                .iter()
                .map(|(value, until)| (value.as_str(), until)),
        )
    }

    pub(in crate::lock) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(AttemptValue, Duration)>, D::Error> {
        let tombstones = Vec::<(String, Duration)>::deserialize(from)?;
        let tombstones = tombstones.into_iter();
        Ok(tombstones
            .map(|(value, until)| (AttemptValue::reported(value), until))
            .collect())
    }
}
