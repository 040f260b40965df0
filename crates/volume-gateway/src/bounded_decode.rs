//! Decoding of untrusted `postcard` messages with bounded memory: two bytes of a message may expand to some hundred in memory. A
//! wrapper around the deserialiser counts the elements of lists and maps, and fails once they exceed a limit.

use std::cell::Cell;
use std::fmt;
use std::mem::size_of;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// The reason why decoding failed.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The lists exceed the memory limit.
    LimitExceeded,
    /// The message is malformed.
    Malformed(postcard::Error),
}

/// Decodes a message whose list elements take at most `limit` bytes; returns also how many they take.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<(T, usize), DecodeError> {
    let left = Cell::new(Some(limit));
    let mut from = postcard::Deserializer::from_bytes(bytes);
    let read = T::deserialize(ItemCounter { inner: &mut from, left: &left, is_list: false });
    match (read, left.get()) {
        (Ok(value), left) => Ok((value, limit - left.unwrap_or_default())),
        (Err(_), None) => Err(DecodeError::LimitExceeded),
        (Err(error), Some(_)) => Err(DecodeError::Malformed(error)),
    }
}

/// Wraps a (de)serialiser with the remaining budget; `None`: exceeded.
#[derive(Clone, Copy)]
struct ItemCounter<'a, T> {
    inner: T,
    left: &'a Cell<Option<usize>>,
    /// The next sequence is a list, of any length.
    is_list: bool,
}

impl<'a, T> ItemCounter<'a, T> {
    fn of<U>(&self, inner: U) -> ItemCounter<'a, U> {
        ItemCounter { inner, left: self.left, is_list: false }
    }

    fn count<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        if self.is_list {
            self.left.set(self.left.get().and_then(|left| left.checked_sub(bytes)));
            self.left.get().ok_or_else(|| E::custom("too much"))?;
        }
        Ok(())
    }
}

macro_rules! forward {
    ($($name:ident)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.of(visitor);
            self.inner.$name(visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ItemCounter<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_option deserialize_unit deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.of(visitor);
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.of(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = ItemCounter { is_list: true, ..self.of(visitor) };
        self.inner.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = ItemCounter { is_list: true, ..self.of(visitor) };
        self.inner.deserialize_map(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.of(visitor);
        self.inner.deserialize_tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.of(visitor);
        self.inner.deserialize_tuple_struct(name, length, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.of(visitor);
        self.inner.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.of(visitor);
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($name:ident: $type:ty)*) => {
        $(fn $name<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$name(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for ItemCounter<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool: bool visit_i8: i8 visit_i16: i16 visit_i32: i32 visit_i64: i64 visit_i128: i128
        visit_u8: u8 visit_u16: u16 visit_u32: u32 visit_u64: u64 visit_u128: u128
        visit_f32: f32 visit_f64: f64 visit_char: char
        visit_str: &str visit_borrowed_str: &'de str visit_string: String
        visit_bytes: &[u8] visit_borrowed_bytes: &'de [u8] visit_byte_buf: Vec<u8>
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        let from = self.of(from);
        self.inner.visit_some(from)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        let from = self.of(from);
        self.inner.visit_newtype_struct(from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = ItemCounter { is_list: self.is_list, ..self.of(access) };
        self.inner.visit_seq(access)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = ItemCounter { is_list: self.is_list, ..self.of(access) };
        self.inner.visit_map(access)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = self.of(access);
        self.inner.visit_enum(access)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for ItemCounter<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        let from = self.of(from);
        self.inner.deserialize(from)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for ItemCounter<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let size = size_of::<S::Value>();
        // A byte contains no list, and there are many of them: decoded without a wrapper.
        let next = match size {
            1 => self.inner.next_element_seed(seed)?,
            _ => self.inner.next_element_seed(self.of(seed))?,
        };
        if next.is_some() {
            self.count(size)?;
        }
        Ok(next)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for ItemCounter<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.of(seed);
        let next = self.inner.next_key_seed(seed)?;
        if next.is_some() {
            self.count(size_of::<S::Value>())?;
        }
        Ok(next)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.count(size_of::<S::Value>())?;
        let seed = self.of(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'a, A: EnumAccess<'de>> EnumAccess<'de> for ItemCounter<'a, A> {
    type Error = A::Error;
    type Variant = ItemCounter<'a, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (seed, rest) = (self.of(seed), self.of(()));
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((value, rest.of(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for ItemCounter<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.of(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.of(visitor);
        self.inner.tuple_variant(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.of(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use shunt_volume_store::codec::encode;

    type Value = (u8, Option<Vec<Option<String>>>, BTreeMap<Vec<u8>, Result<u64, (bool, i32)>>);

    #[test]
    fn decoding_returns_encoded_value_within_the_limit() {
        let names = vec![Some("a".to_owned()), None, Some("c".to_owned())];
        let map = BTreeMap::from([(vec![1, 2, 3], Ok(7)), (vec![], Err((true, -1)))]);
        let value: Value = (5, Some(names), map);
        let bytes = encode(&value);
        let (read, used) = decode::<Value>(&bytes, 1 << 20).unwrap();
        assert_eq!(read, value);
        let lists = 3 * size_of::<Option<String>>();
        assert_eq!(used, lists + 2 * size_of::<(Vec<u8>, Result<u64, (bool, i32)>)>() + 3);
        assert_eq!(decode::<Value>(&bytes, used).unwrap().0, value);
        assert!(matches!(decode::<Value>(&bytes, used - 1), Err(DecodeError::LimitExceeded)));
        assert!(matches!(decode::<Value>(&bytes[..4], used), Err(DecodeError::Malformed(_))));
    }

    #[test]
    fn a_long_list_of_nothing_is_too_much() {
        let bytes = encode(&vec![None::<[u64; 30]>; 1 << 20]);
        assert!(matches!(decode::<Vec<Option<[u64; 30]>>>(&bytes, 1 << 20), Err(DecodeError::LimitExceeded)));
    }
}
