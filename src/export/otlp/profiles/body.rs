//! A request under construction. Samples are written directly into it. The fields that precede them and contain their length are moved into
//! place once it is known, so samples are copied only once.

use super::message::LENGTH;
use super::piece::Piece;
use crate::export::otlp::attribute::{Resource, SCHEMA_URL, Scope};
use crate::export::otlp::profiles::dictionary::Dictionary;
use crate::export::protobuf::wire::{Sink, WireType};

/// Fields `ExportProfilesServiceRequest.resource_profiles` and `.dictionary`.
const RESOURCES: u32 = 1;
const DICTIONARY: u32 = 2;
/// Fields `ResourceProfiles.scope_profiles` and `ScopeProfiles.profiles`.
const SCOPES: u32 = 2;
const PROFILES: u32 = 2;

/// The encoded request.
#[derive(Debug, Default)]
pub(super) struct Body {
    bytes: Vec<u8>,
    /// Last resource: offset of its profiles, number of its group, and the resource.
    last: Option<(usize, usize, Resource)>,
    items: u64,
}

impl Body {
    /// Returns the group of the last profile.
    pub(super) fn group(&self) -> Option<usize> {
        self.last.as_ref().map(|&(_, group, _)| group)
    }

    /// Returns the number of samples so far.
    pub(super) fn items(&self) -> u64 {
        self.items
    }

    /// Returns the number of bytes so far, without the fields that will enclose the profiles of the last resource.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns an upper bound for the bytes that enclose the profiles of a resource.
    pub(super) fn around(resource: &Resource) -> usize {
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        around(resource, 0, &mut head, &mut tail);
        head.len() + tail.len() + 2 * LENGTH
    }

    /// Adds a profile that starts with `head`.
    pub(super) fn add(
        &mut self,
        (group, resource): (usize, &Resource),
        head: &[u8],
        piece: &Piece,
        dictionary: &Dictionary<'_>,
    ) {
        if self.group() != Some(group) {
            self.end();
            self.last = Some((self.bytes.len(), group, resource.clone()));
        }
        self.items += piece.len() as u64;
        self.bytes.key(PROFILES, WireType::Delimited);
        self.bytes.varint((head.len() + piece.bytes()) as u64);
        self.bytes.extend_from_slice(head);
        piece.write(&mut self.bytes, dictionary);
    }

    /// Encloses the profiles of the last resource in its messages.
    fn end(&mut self) {
        let Some((start, _, resource)) = self.last.take() else { return };
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        around(&resource, self.bytes.len() - start, &mut head, &mut tail);
        self.bytes.extend_from_slice(&tail);
        self.bytes.extend_from_slice(&head);
        if let Some(group) = self.bytes.get_mut(start..) {
            group.rotate_right(head.len());
        }
    }

    /// Returns the request with the tables of its dictionary. Each table is freed once it is copied.
    pub(super) fn finish(mut self, tables: Vec<Vec<u8>>) -> Vec<u8> {
        self.end();
        let length: usize = tables.iter().map(Vec::len).sum();
        self.bytes.reserve_exact(length + LENGTH);
        self.bytes.key(DICTIONARY, WireType::Delimited);
        self.bytes.varint(length as u64);
        tables.into_iter().for_each(|table| self.bytes.extend_from_slice(&table));
        self.bytes.shrink_to_fit();
        self.bytes
    }
}

/// Writes the fields before and after `length` bytes of profiles.
fn around(resource: &Resource, length: usize, head: &mut Vec<u8>, tail: &mut Vec<u8>) {
    let (mut scope, mut inner) = (Vec::new(), Vec::new());
    scope.message(1, &Scope);
    tail.string(3, SCHEMA_URL);
    inner.message(1, resource);
    inner.key(SCOPES, WireType::Delimited);
    inner.varint((scope.len() + length + tail.len()) as u64);
    inner.append(&mut scope);
    // The schema of the resource equals that of the scope.
    tail.string(3, SCHEMA_URL);
    head.key(RESOURCES, WireType::Delimited);
    head.varint((inner.len() + length + tail.len()) as u64);
    head.append(&mut inner);
}
