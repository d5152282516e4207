//! Call chains as the kernel writes them (`PERF_SAMPLE_CALLCHAIN`): addresses, and context markers that apply to the addresses after them.
//!
//! Source of the format: `enum perf_callchain_context` in the kernel's `include/uapi/linux/perf_event.h`.

use super::Truncation;
use crate::ring::Sample;

/// The lowest number that is a context marker, not an address (`PERF_CONTEXT_MAX`).
const MARKERS: u64 = -4095i64 as u64;
/// `PERF_CONTEXT_KERNEL`
const KERNEL: u64 = -128i64 as u64;
/// `PERF_CONTEXT_USER`
const USER: u64 = -512i64 as u64;
/// The first address of the kernel half on all supported processors.
const KERNEL_HALF: u64 = 1 << 63;

/// A parsed call chain. Each part begins with the address of an instruction; all further addresses are return addresses.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The kernel part, innermost first.
    pub(crate) kernel: Vec<u64>,
    /// The user part, innermost first.
    pub(crate) user: Vec<u64>,
    /// Whether the chain has as many addresses as the kernel writes, so that it may be truncated.
    pub(crate) deep: bool,
}

#[derive(Clone, Copy)]
enum Part {
    Kernel,
    User,
    /// A guest or a hypervisor, whose code cannot be attributed here.
    Other,
    /// Before the first marker.
    Unmarked,
}

impl Chain {
    /// Parses the chain of a sample. `limit` is the most addresses that the kernel writes.
    pub(crate) fn take(&mut self, sample: &Sample<'_>, limit: usize) {
        self.kernel.clear();
        self.user.clear();
        let (mut part, mut addresses) = (Part::Unmarked, 0);
        for &word in sample.callchain {
            let address = u64::from_ne_bytes(word);
            if address >= MARKERS {
                part = match address {
                    KERNEL => Part::Kernel,
                    USER => Part::User,
                    _ => Part::Other,
                };
                continue;
            }
            addresses += 1;
            match part {
                // 0 is a valid address: a function called through a null pointer begins there.
                Part::Kernel => self.kernel.push(address),
                Part::User => self.user.push(address),
                Part::Other => {}
                Part::Unmarked => self.push(address),
            }
        }
        self.deep = addresses >= limit;
        if self.kernel.is_empty() && self.user.is_empty() && sample.ip != 0 {
            self.push(sample.ip);
        }
    }

    /// Adds an address without a marker.
    fn push(&mut self, address: u64) {
        if address >= KERNEL_HALF { self.kernel.push(address) } else { self.user.push(address) }
    }

    /// Returns why the outer end of the chain may be missing.
    pub(super) fn cut(&self) -> Option<Truncation> {
        self.deep.then_some(Truncation::Deep)
    }
}

/// Returns the addresses to look up: for a call the last byte of the call instruction, which is before the return address.
pub(super) fn places(addresses: &[u64]) -> impl Iterator<Item = u64> {
    addresses.iter().enumerate().map(|(depth, &address)| address.saturating_sub(u64::from(depth > 0)))
}

/// Continues an incomplete stack with the chain of frame pointers, after the outermost frame that both contain. Returns whether frames were
/// added.
///
/// A chain omits functions without a frame pointer, and ends where a function uses the register for another purpose. Therefore frames that
/// only unwinding found are kept. Without a common caller, nothing shows that the chain belongs to this stack.
pub(super) fn splice(frames: &mut Vec<u64>, chain: &[u64], depth: usize) -> bool {
    let Some((&first, callers)) = chain.split_first() else { return false };
    let rest = match &frames[..] {
        [] => chain,
        [own] => {
            if *own == first {
                callers
            } else {
                &[]
            }
        }
        [_, unwound @ ..] => {
            let common = (0..unwound.len()).rev().find(|&place| callers.contains(&unwound[place]));
            let Some(common) = common else { return false };
            // A recursive function occurs several times: match the occurrence with the same number of inner occurrences.
            let address = unwound[common];
            let inside = unwound[..common].iter().filter(|&&inner| inner == address).count();
            let mut places = (0..callers.len()).filter(|&place| callers[place] == address);
            let same = places.clone().nth(inside).or_else(|| places.next_back());
            same.map_or(&[][..], |place| &callers[place + 1..])
        }
    };
    let room = depth.saturating_sub(frames.len());
    frames.extend(rest.iter().take(room));
    !rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(addresses: &[u64]) -> Vec<[u8; 8]> {
        addresses.iter().map(|address| address.to_ne_bytes()).collect()
    }

    fn chain(addresses: &[u64], ip: u64) -> Chain {
        let words = words(addresses);
        let mut chain = Chain::default();
        chain.take(&Sample { callchain: &words, ip, ..Sample::default() }, 4);
        chain
    }

    const INSIDE: u64 = 0xffff_ffff_8100_0000;

    #[test]
    fn markers_say_whose_the_addresses_behind_them_are() {
        let found = chain(&[KERNEL, INSIDE, INSIDE + 1, USER, 0x1000], INSIDE);
        assert_eq!((&found.kernel[..], &found.user[..]), (&[INSIDE, INSIDE + 1][..], &[0x1000][..]));
        assert_eq!(found.cut(), None);
    }

    #[test]
    fn what_a_guest_or_a_hypervisor_does_is_not_taken_for_ours() {
        let guest = -2048i64 as u64;
        let found = chain(&[guest, 0x1234, -32i64 as u64, INSIDE, USER, 0x1000], 0);
        assert_eq!((found.kernel.len(), &found.user[..]), (0, &[0x1000][..]));
    }

    #[test]
    fn a_chain_without_addresses_is_the_instruction_alone() {
        assert_eq!(chain(&[], INSIDE).kernel, [INSIDE]);
        assert_eq!(chain(&[USER], 0x1000).user, [0x1000]);
        assert_eq!(chain(&[], 0), Chain::default());
    }

    #[test]
    fn a_chain_as_deep_as_the_kernel_writes_is_cut() {
        assert_eq!(chain(&[USER, 1, 2, 3], 1).cut(), None);
        assert_eq!(chain(&[USER, 1, 2, 3, 4], 1).cut(), Some(Truncation::Deep));
        assert_eq!(chain(&[KERNEL, INSIDE, USER, 1, 2, 3], 1).cut(), Some(Truncation::Deep));
    }

    #[test]
    fn a_return_address_stands_for_the_call_before_it() {
        assert_eq!(places(&[10, 20, 0]).collect::<Vec<_>>(), [10, 19, 0]);
    }

    fn spliced(frames: &[u64], chain: &[u64]) -> (Vec<u64>, bool) {
        let mut frames = frames.to_vec();
        let helped = splice(&mut frames, chain, 8);
        (frames, helped)
    }

    #[test]
    fn frame_pointers_go_on_behind_the_outermost_frame_that_both_know() {
        assert_eq!(spliced(&[1, 2, 3, 4], &[1, 3, 5, 6]), (vec![1, 2, 3, 4, 5, 6], true));
        // Nothing was unwound.
        assert_eq!(spliced(&[1], &[1, 5, 6]), (vec![1, 5, 6], true));
        assert_eq!(spliced(&[], &[1, 5]), (vec![1, 5], true));
    }

    #[test]
    fn a_chain_that_shares_no_caller_is_about_something_else() {
        assert_eq!(spliced(&[1, 2, 3], &[1, 77, 78]), (vec![1, 2, 3], false));
        assert_eq!(spliced(&[1], &[9, 77]), (vec![1], false));
        assert_eq!(spliced(&[1, 2], &[]), (vec![1, 2], false));
    }

    #[test]
    fn a_chain_that_ends_at_the_same_frame_does_not_help() {
        assert_eq!(spliced(&[1, 2, 3], &[1, 2, 3]), (vec![1, 2, 3], false));
    }

    #[test]
    fn recursion_is_neither_shortened_nor_drawn_out() {
        // 7 called itself five times; the copy contained two of the calls.
        assert_eq!(spliced(&[1, 7, 7], &[1, 7, 7, 7, 7, 7, 9]), (vec![1, 7, 7, 7, 7, 7, 9], true));
    }

    #[test]
    fn what_is_spliced_is_not_deeper_than_is_kept() {
        assert_eq!(spliced(&[1], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).0, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    proptest! {
        #[test]
        fn any_chain_has_each_address_at_most_once_and_in_order(
            addresses in proptest::collection::vec(prop_oneof![any::<u64>(), Just(KERNEL), Just(USER), 0u64..9], 0..200),
            ip: u64,
        ) {
            let found = chain(&addresses, ip);
            prop_assert!(found.kernel.len() + found.user.len() <= addresses.len().max(1));
            for part in [&found.kernel, &found.user] {
                let mut all = addresses.iter().chain([&ip]);
                prop_assert!(part.iter().all(|address| all.any(|other| other == address)));
                prop_assert_eq!(places(part).count(), part.len());
            }
        }

        #[test]
        fn splicing_keeps_what_was_unwound(
            frames in proptest::collection::vec(0u64..6, 0..10),
            chain in proptest::collection::vec(0u64..6, 0..10),
        ) {
            let mut found = frames.clone();
            let helped = splice(&mut found, &chain, 16);
            prop_assert_eq!(&found[..frames.len()], &frames[..]);
            prop_assert_eq!(helped, found.len() > frames.len());
            prop_assert!(chain.ends_with(&found[frames.len()..]) || found.len() == 16);
        }
    }
}
