//! Colors of frames: the kind of code, or the change of a share.

use std::fmt;
use std::hash::Hasher as _;

use rustc_hash::FxHasher;

use crate::export::folded::Name;
use crate::profile::Origin;

/// A color: `#rrggbb`. All are light enough for dark text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Color {
    pub(super) r: u8,
    pub(super) g: u8,
    pub(super) b: u8,
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.r, self.g, self.b)
    }
}

/// Color of the frame that contains all others.
pub(super) const ALL: Color = Color { r: 190, g: 200, b: 214 };

/// Color of frames without a change.
const SAME: Color = Color { r: 224, g: 226, b: 229 };
/// Color of the largest increase. With [`LESS`], it is distinguishable for all kinds of color blindness.
const MORE: Color = Color { r: 233, g: 92, b: 66 };
/// Color of the largest decrease.
const LESS: Color = Color { r: 84, g: 148, b: 240 };

/// Smallest change in percentage points that has the full color. Otherwise, noise would have it if nothing changed.
const SMALLEST_SCALE: f64 = 1.0;

/// Returns the color of a name: a hue for the kind of code, and a shade derived from the name.
pub(super) fn of_name(name: &Name) -> Color {
    let mut hasher = FxHasher::default();
    hasher.write(name.text.as_bytes());
    // Two numbers from 0 to 1: the upper bits of a product have the better distribution.
    let hash = hasher.finish();
    let part = |shift: u32| ((hash >> shift) & 0xff) as f64 / 255.0;
    let (a, b) = (part(56), part(48));
    // For red, green and blue: the base value, and the weights of the two numbers.
    let shades: [(u8, u8, u8); 3] = match name.origin {
        // Root frames.
        None => [(150, 20, 0), (172, 20, 0), (200, 20, 0)],
        Some(Origin::Kernel) => [(238, 12, 0), (140, 30, 10), (50, 0, 30)],
        Some(Origin::Jit) => [(110, 30, 10), (196, 30, 0), (100, 20, 20)],
        Some(Origin::Native) if name.is_inlined() => [(90, 20, 20), (195, 25, 0), (200, 0, 25)],
        Some(Origin::Native) if name.text.contains("::") => [(224, 20, 0), (196, 30, 0), (70, 0, 40)],
        Some(Origin::Native) => [(228, 20, 0), (96, 35, 15), (84, 0, 30)],
        Some(Origin::Unknown) => [(176, 20, 0); 3],
    };
    let shade = |(base, of_a, of_b)| f64::from(base) + a * f64::from(of_a) + b * f64::from(of_b);
    let [r, g, b] = shades.map(|range| shade(range) as u8);
    Color { r, g, b }
}

/// Returns the color of a change in percentage points: red for an increase, blue for a decrease. The saturation grows with the size, up to
/// the size `largest`.
pub(super) fn of_change(points: f64, largest: f64) -> Color {
    // The root makes small changes visible.
    let part = (points.abs() / largest.max(SMALLEST_SCALE)).min(1.0).sqrt();
    let end = if points > 0.0 { MORE } else { LESS };
    let mix = |from: u8, to: u8| (f64::from(from) + part * (f64::from(to) - f64::from(from))).round() as u8;
    Color { r: mix(SAME.r, end.r), g: mix(SAME.g, end.g), b: mix(SAME.b, end.b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::folded::{Folded, Options};
    use crate::profile::Mode;
    use crate::profile::sample_profiles::{Builder, jit, kernel, native, task};

    #[test]
    fn colours_tell_whose_code_it_is() {
        let mut builder = Builder::default();
        let stack = [kernel("a"), jit("a"), native("/bin/a", "one"), native("/bin/a", "another")];
        builder.add(&task(1, "t", "/"), Mode::User, 1, &stack);
        let folded = Folded::new(&builder.0, Options::default());
        let of = |text: &str| of_name(folded.names().iter().find(|name| name.text == text).unwrap());
        let (kernel, jit) = (of("a_[k]"), of("a_[j]"));
        assert!(kernel.r > kernel.g && kernel.g > kernel.b, "{kernel:?}");
        assert!(jit.g > jit.r && jit.g > jit.b, "{jit:?}");
        assert_ne!(of("one"), of("another"));
    }

    #[test]
    fn larger_changes_have_stronger_colors() {
        assert_eq!([0.0, 5.0, -5.0].map(|points| of_change(points, 5.0)), [SAME, MORE, LESS]);
        let greens = [0.1, 1.0, 3.0, 5.0].map(|points| of_change(points, 5.0).g);
        assert!(greens.is_sorted_by(|a, b| a > b), "{greens:?}");
        assert!(of_change(0.01, 0.01).g > 200, "noise has no strong color");
    }

    /// Converts to linear light.
    fn linear(color: Color) -> [f64; 3] {
        [color.r, color.g, color.b].map(|value| {
            let value = f64::from(value) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// Simulates a total color blindness of one kind. The matrices are those of Machado, Oliveira and Fernandes (2009), severity 1.
    fn simulated([r, g, b]: [f64; 3], matrix: [[f64; 3]; 3]) -> [f64; 3] {
        matrix.map(|row| (row[0] * r + row[1] * g + row[2] * b).clamp(0.0, 1.0))
    }

    /// Converts linear light to CIELAB.
    fn lab([r, g, b]: [f64; 3]) -> [f64; 3] {
        let f = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
        let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn increases_and_decreases_are_distinguishable_for_color_blind_readers() {
        let kinds = [
            ("none", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
            (
                "protanopia",
                [
                    [0.152_286, 1.052_583, -0.204_868],
                    [0.114_503, 0.786_281, 0.099_216],
                    [-0.003_882, -0.048_116, 1.051_998],
                ],
            ),
            (
                "deuteranopia",
                [
                    [0.367_322, 0.860_646, -0.227_968],
                    [0.280_085, 0.672_501, 0.047_413],
                    [-0.011_820, 0.042_940, 0.968_881],
                ],
            ),
            (
                "tritanopia",
                [
                    [1.255_528, -0.076_749, -0.178_779],
                    [-0.078_411, 0.930_809, 0.147_602],
                    [0.004_733, 0.691_367, 0.303_900],
                ],
            ),
        ];
        for (kind, matrix) in kinds {
            let seen = |points| lab(simulated(linear(of_change(points, 10.0)), matrix));
            for size in [1.0, 3.0, 10.0] {
                let (more, less, same) = (seen(size), seen(-size), seen(0.0));
                let distance = |a: [f64; 3], b: [f64; 3]| {
                    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
                };
                assert!(distance(more, less) > 20.0, "{kind}, {size}: {}", distance(more, less));
                assert!(distance(more, same) > 8.0 && distance(less, same) > 8.0, "{kind}, {size}");
            }
        }
    }

    #[test]
    fn dark_text_is_readable_on_every_color_of_a_change() {
        let luminance = |color| {
            let [r, g, b] = linear(color);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let text = luminance(Color { r: 0x1b, g: 0x20, b: 0x26 });
        for points in [-10.0, -3.0, 0.0, 3.0, 10.0] {
            let contrast = (luminance(of_change(points, 10.0)) + 0.05) / (text + 0.05);
            assert!(contrast >= 4.5, "{points}: {contrast}");
        }
    }
}
