//! The frames of an image: stacks with a common beginning are one frame.

use crate::export::folded::Values;

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Index of the name; `None` for the frame that contains all others.
    pub(super) name: Option<u32>,
    /// Number of frames outside of it.
    pub(super) depth: usize,
    /// Sum of the values before it.
    pub(super) start: u128,
    /// Its value, which is its width.
    pub(super) this: u128,
    /// Its value in the base.
    pub(super) base: u128,
}

impl Frame {
    /// Returns the end of the frame.
    fn end(&self) -> u128 {
        self.start + self.this
    }
}

/// Returns the frames of sorted stacks in order: a frame is before the frames that it contains. With `root`, a frame contains all others.
/// `deepest` is the maximum number of frames of a stack, counted from the outermost.
pub(super) fn frames<'s>(
    stacks: impl Iterator<Item = (&'s [u32], Values)>,
    root: bool,
    deepest: usize,
) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    // Indexes of the frames that contain the current position.
    let mut open: Vec<usize> = Vec::new();
    let mut start = 0;
    for (stack, values) in stacks {
        let root = root.then_some(None);
        let names = root.into_iter().chain(stack.iter().take(deepest).map(|&name| Some(name)));
        let mut depth = 0;
        for name in names {
            let known = open.get(depth).and_then(|&place| frames.get(place));
            if known.is_none_or(|known| known.name != name) {
                open.truncate(depth);
                open.push(frames.len());
                frames.push(Frame { name, depth, start, this: 0, base: 0 });
            }
            depth += 1;
        }
        open.truncate(depth);
        for &place in &open {
            if let Some(frame) = frames.get_mut(place) {
                frame.this += u128::from(values.this);
                frame.base += u128::from(values.base);
            }
        }
        start += u128::from(values.this);
    }
    frames
}

/// Returns the part of the width that frames cover.
pub(super) fn covered<'f>(frames: impl Iterator<Item = &'f Frame>) -> u128 {
    let (mut sum, mut end) = (0, 0);
    for frame in frames {
        if frame.start >= end {
            sum += frame.this;
            end = frame.end();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(this: u64, base: u64) -> Values {
        Values { this, base }
    }

    #[test]
    fn stacks_with_a_common_beginning_share_its_frames() {
        let stacks: [(&[u32], _); 4] = [
            (&[1], values(1, 0)),
            (&[1, 2], values(2, 5)),
            (&[1, 2, 3], values(4, 0)),
            (&[4, 2], values(0, 8)),
        ];
        let frames = frames(stacks.into_iter(), true, 10);
        let shown: Vec<_> =
            frames.iter().map(|f| (f.name, f.depth, f.start as u64, f.this as u64, f.base as u64)).collect();
        assert_eq!(
            shown,
            [
                (None, 0, 0, 7, 13),
                (Some(1), 1, 0, 7, 5),
                (Some(2), 2, 1, 6, 5),
                (Some(3), 3, 3, 4, 0),
                (Some(4), 1, 7, 0, 8),
                (Some(2), 2, 7, 0, 8),
            ]
        );
        assert_eq!(covered([&frames[2], &frames[3]].into_iter()), 6);
    }

    #[test]
    fn deep_stacks_are_truncated_at_their_inner_end() {
        let stacks: [(&[u32], _); 2] = [(&[1, 2, 3, 4], values(1, 0)), (&[1, 2, 5], values(1, 0))];
        let frames = frames(stacks.into_iter(), false, 2);
        assert_eq!(frames.iter().map(|frame| frame.this as u64).collect::<Vec<_>>(), [2, 2]);
    }
}
