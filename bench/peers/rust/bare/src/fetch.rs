//! The client of one task: a connection that is kept while the server keeps it, and its host is asked for.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, ACCEPT, CONNECTION, HOST, USER_AGENT};
use hyper::rt::{Read, Write};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio_rustls::TlsConnector;
use url::{Position, Url};

use crate::Failure;

/// A whole response.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub request_headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Connects to one address, whatever the host's name: DNS does not know the names of the benchmark.
pub struct Client {
    address: SocketAddr,
    tls: TlsConnector,
    kept: Option<(String, SendRequest<Empty<Bytes>>)>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        Self { address, tls: TlsConnector::from(Arc::new(config)), kept: None }
    }

    /// Fetches a page. No redirects, because the site has none.
    pub async fn fetch(&mut self, url: &Url) -> Result<Answer, Failure> {
        let authority = url[Position::BeforeHost..Position::AfterPort].to_string();
        let kept = self.kept.take().filter(|(host, sender)| *host == authority && !sender.is_closed());
        let mut sender = match kept {
            Some((_, sender)) => sender,
            None => self.connect(url).await?,
        };
        sender.ready().await?;
        let request = Request::get(&url[Position::BeforePath..])
            .header(HOST, &authority)
            .header(USER_AGENT, "bench-bare-rust")
            .header(ACCEPT, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
            .body(Empty::new())?;
        let request_headers = request.headers().clone();
        let (head, mut incoming) = sender.send_request(request).await?.into_parts();
        let mut body = Vec::with_capacity(incoming.size_hint().exact().unwrap_or_default() as usize);
        while let Some(frame) = incoming.frame().await {
            if let Ok(data) = frame?.into_data() {
                body.extend_from_slice(&data);
            }
        }
        if !head.headers.get(CONNECTION).is_some_and(|value| value == "close") {
            self.kept = Some((authority, sender));
        }
        Ok(Answer { status: head.status, headers: head.headers, request_headers, body })
    }

    async fn connect(&self, url: &Url) -> Result<SendRequest<Empty<Bytes>>, Failure> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        if url.scheme() != "https" {
            return handshake(TokioIo::new(stream)).await;
        }
        let name = ServerName::try_from(url.host_str().unwrap_or_default().to_string())?;
        handshake(TokioIo::new(self.tls.connect(name, stream).await?)).await
    }
}

async fn handshake(stream: impl Read + Write + Unpin + 'static) -> Result<SendRequest<Empty<Bytes>>, Failure> {
    let (sender, connection) = http1::handshake(stream).await?;
    tokio::task::spawn_local(connection);
    Ok(sender)
}

/// Accepts every certificate, as all crawlers of the benchmark do.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
