//! Names of images for their IDs, from `runtime.v1.ImageService`.
//!
//! The kubelet creates containers with the ID of the image. Runtimes report the name from the pod since Kubernetes 1.29 and containerd 2.0
//! only (`user_specified_image`).

use std::collections::HashMap;

use prost::Message;

/// `Image`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Image {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, repeated, tag = "2")]
    tags: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    digests: Vec<String>,
}

/// Names of images by ID.
#[derive(Debug, Default)]
pub(super) struct ImageNames<'i>(HashMap<&'i str, &'i str>);

impl<'i> ImageNames<'i> {
    /// Selects a name for each image: the first tag in alphabetical order, so that it does not depend on the order of a response. An image that
    /// was pulled by digest has no tag, but a name with the digest.
    pub(super) fn of(images: &'i [Image]) -> Self {
        let named = images.iter().filter_map(|image| {
            let first = |names: &'i [String]| names.iter().filter(|name| !name.is_empty()).min();
            let name = first(&image.tags).or_else(|| first(&image.digests))?;
            Some((bare(&image.id), name.as_str()))
        });
        Self(named.collect())
    }

    /// Returns the name of the image with this ID, or the text itself if it is no ID or has no name.
    pub(super) fn name<'t>(&self, text: &'t str) -> &'t str
    where
        'i: 't,
    {
        if is_id(text) { self.0.get(bare(text)).copied().unwrap_or(text) } else { text }
    }
}

/// Reports whether a text is an ID instead of a name.
pub(super) fn is_id(text: &str) -> bool {
    let bare = bare(text);
    bare.len() == 64 && bare.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes the algorithm, which CRI-O omits.
fn bare(id: &str) -> &str {
    id.strip_prefix("sha256:").unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sha256:4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";

    fn image(tags: &[&str], digests: &[&str]) -> [Image; 1] {
        let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        [Image { id: ID.to_owned(), tags: texts(tags), digests: texts(digests) }]
    }

    #[test]
    fn an_id_is_replaced_by_the_first_tag_of_the_image() {
        let images = image(&["registry/web:2", "registry/web:1"], &["registry/web@sha256:0"]);
        let names = ImageNames::of(&images);
        assert_eq!(names.name(ID), "registry/web:1");
        assert_eq!(names.name(bare(ID)), "registry/web:1", "CRI-O omits the algorithm");
    }

    #[test]
    fn an_image_without_a_tag_has_the_name_with_its_digest() {
        let images = image(&[], &["registry/web@sha256:0"]);
        assert_eq!(ImageNames::of(&images).name(ID), "registry/web@sha256:0");
    }

    #[test]
    fn an_unknown_id_and_a_name_stay_as_they_are() {
        for images in [image(&[], &[]), image(&[""], &[])] {
            let names = ImageNames::of(&images);
            assert_eq!(names.name(ID), ID);
            assert_eq!(names.name("web:1"), "web:1");
            assert_eq!(names.name("sha256:1"), "sha256:1");
        }
    }
}
