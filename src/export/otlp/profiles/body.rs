//! A request while it is being written. Samples stand in it at once, and what must stand before them, because it tells
//! their length, is moved there when that is known: so there is one copy of them.

use super::message::LENGTH;
use super::piece::Piece;
use crate::export::otlp::attribute::{Resource, SCHEMA_URL, Scope};
use crate::export::otlp::profiles::dictionary::Dictionary;
use crate::export::protobuf::wire::{Sink, WireType};

/// `ExportProfilesServiceRequest.resource_profiles` and `.dictionary`.
const RESOURCES: u32 = 1;
const DICTIONARY: u32 = 2;
/// `ResourceProfiles.scope_profiles`, and `ScopeProfiles.profiles`.
const SCOPES: u32 = 2;
const PROFILES: u32 = 2;

/// What is written.
#[derive(Debug, Default)]
pub(super) struct Body {
    bytes: Vec<u8>,
    /// Where the profiles of the last resource begin, the number of its group, and itself.
    last: Option<(usize, usize, Resource)>,
    items: u64,
}

impl Body {
    /// The group of what was written last.
    pub(super) fn group(&self) -> Option<usize> {
        self.last.as_ref().map(|&(_, group, _)| group)
    }

    /// Samples so far.
    pub(super) fn items(&self) -> u64 {
        self.items
    }

    /// Bytes so far; around those of the last resource there will be some more.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes around the profiles of a resource, or somewhat more.
    pub(super) fn around(resource: &Resource) -> usize {
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        around(resource, 0, &mut head, &mut tail);
        head.len() + tail.len() + 2 * LENGTH
    }

    /// Adds a profile that begins with `head`.
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

    /// Puts around the profiles of the last resource what belongs there.
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

    /// The request, with the tables of its dictionary. Each is given up as soon as it is in it.
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

/// What stands before and behind `length` bytes of profiles.
fn around(resource: &Resource, length: usize, head: &mut Vec<u8>, tail: &mut Vec<u8>) {
    let (mut scope, mut inner) = (Vec::new(), Vec::new());
    scope.message(1, &Scope);
    tail.string(3, SCHEMA_URL);
    inner.message(1, resource);
    inner.key(SCOPES, WireType::Delimited);
    inner.varint((scope.len() + length + tail.len()) as u64);
    inner.append(&mut scope);
    // That of the resource is the same as that of the scope.
    tail.string(3, SCHEMA_URL);
    head.key(RESOURCES, WireType::Delimited);
    head.varint((inner.len() + length + tail.len()) as u64);
    head.append(&mut inner);
}
