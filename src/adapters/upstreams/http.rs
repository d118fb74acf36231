//! MCP over HTTP: rmcp's transport on a client that follows no redirect and uses no proxy, and that puts the
//! idempotency key of a call into the header `Idempotency-Key` as well.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;

use super::KEY_META;

type HttpError = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// The transport to one server.
pub(super) fn transport(url: &str) -> Result<StreamableHttpClientTransport<KeyedClient>, reqwest::Error> {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        // A pooled connection can be closed by the server while it is used again: then nobody knows whether the
        // call ran. A fresh one either connects or it doesn't.
        .pool_max_idle_per_host(0)
        .build()?;
    let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    Ok(StreamableHttpClientTransport::with_client(KeyedClient(client), config))
}

/// rmcp's reqwest client, with one more header on tool calls.
#[derive(Clone)]
pub(super) struct KeyedClient(reqwest::Client);

fn key_of(message: &ClientJsonRpcMessage) -> Option<HeaderValue> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    if !matches!(request.request, ClientRequest::CallToolRequest(_)) {
        return None;
    }
    let key = request.request.get_meta().0.get(KEY_META).and_then(|key| key.as_str());
    // A key that no header can carry still travels in `_meta`.
    HeaderValue::from_str(key?).ok()
}

impl StreamableHttpClient for KeyedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        mut custom_headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        if let Some(key) = key_of(&message) {
            custom_headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        self.0.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), HttpError> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        self.0.get_stream(uri, session_id, last_event_id, auth_header, custom_headers).await
    }
}
