//! Spans of the exporter's own work: collections, scrapes and pushes.
//!
//! Each part of the program gets a handle, [`Spans`], as an argument. There is no global tracer provider. Without a provider, which is the
//! default, a span costs one access to a lock. Spans have no parents: one collection serves several scrapes.

use std::sync::{Arc, PoisonError, RwLock};

use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span as SdkSpan};

/// Creates spans if they are exported. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Spans(Arc<RwLock<Option<Exported>>>);

#[derive(Debug)]
struct Exported {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
}

/// A span in progress, or nothing if spans are not exported. The span ends when the value is dropped.
#[derive(Debug, Default)]
pub struct Span(Option<SdkSpan>);

impl Spans {
    /// Begins a span.
    pub fn begin(&self, name: &'static str, kind: SpanKind) -> Span {
        let exported = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Span(exported.as_ref().map(|Exported { tracer, .. }| {
            tracer.build_with_context(tracer.span_builder(name).with_kind(kind), &Context::new())
        }))
    }

    /// Replaces the provider that exports spans; `None` exports none. Returns the previous provider, which the caller shuts down.
    pub fn replace(&self, provider: Option<SdkTracerProvider>) -> Option<SdkTracerProvider> {
        let next = provider.map(|provider| {
            let scope = InstrumentationScope::builder(env!("CARGO_PKG_NAME"))
                .with_version(env!("CARGO_PKG_VERSION"))
                .build();
            Exported { tracer: provider.tracer_with_scope(scope), provider }
        });
        let mut exported = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *exported, next).map(|Exported { provider, .. }| provider)
    }
}

impl Span {
    /// Sets an attribute, with a key of the semantic conventions or one that begins with `perf_exporter.`.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Sets the status to an error with a description.
    pub fn fail(&mut self, why: &str) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(why.to_owned()));
        }
    }

    /// Reports whether the span is exported.
    pub fn is_exported(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SpanData, SpanExporter};

    use super::*;

    /// Keeps the spans that have ended.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Kept(pub(crate) Arc<Mutex<Vec<SpanData>>>);

    impl Kept {
        /// Returns the spans of `spans` that end from now on.
        pub(crate) fn of(spans: &Spans) -> Self {
            let kept = Self::default();
            let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
            assert!(spans.replace(Some(provider)).is_none());
            kept
        }

        /// Returns names, statuses and attributes of the spans; the attributes are sorted.
        pub(crate) fn told(&self) -> Vec<(String, Status, Vec<String>)> {
            let spans = self.0.lock().unwrap();
            let told = spans.iter().map(|span| {
                let mut attributes: Vec<String> =
                    span.attributes.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
                attributes.sort();
                (span.name.to_string(), span.status.clone(), attributes)
            });
            told.collect()
        }
    }

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    #[test]
    fn spans_exist_only_while_there_is_a_provider_and_end_when_they_are_dropped() {
        let spans = Spans::default();
        assert!(!spans.begin("collect", SpanKind::Internal).is_exported());
        let kept = Kept::of(&spans);
        let mut span = spans.clone().begin("push", SpanKind::Client);
        span.set("server.port", 4317_i64);
        span.fail("no response");
        assert_eq!(kept.told(), [], "it has not ended");
        drop(span);
        let provider = spans.replace(None).unwrap();
        drop(spans.begin("scrape", SpanKind::Server));
        provider.shutdown().unwrap();
        let expected = ("push".to_owned(), Status::error("no response"), vec!["server.port=4317".to_owned()]);
        assert_eq!(kept.told(), [expected]);
    }
}
