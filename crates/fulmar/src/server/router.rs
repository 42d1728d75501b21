//! What a service registers: its methods, each once for a reactor.

use std::future::Future;
use std::sync::Arc;

use fulmar_grpc::{Arena, Config, MethodId, RouteError, Routes, Status};

use super::intercepted::intercepted;
use super::method::{Method, Parts, TypedMethod};
use super::{Order, Placer};
use crate::call::{CallCell, CallFate, CellShelf, Replies, Streaming};
use crate::counts::Counts;
use crate::error::ServerError;
use crate::intercept::Chain;
use crate::metadata_lease::MetadataShelf;
use crate::packing::Press;
use crate::payload::{Payload, Raw};
use crate::request::Request;
use crate::response::Response;

/// How many fates of calls wait for their next ones: more than a connection has streams by default.
const FATES_MAX: usize = 2_048;

/// How many orders for other reactors wait for their next calls.
const ORDERS_MAX: usize = 2_048;

/// A group of methods under one name, served together. Generated code implements it.
pub trait Service: Send + Sync + 'static {
    /// The full name: `package.Service`.
    fn name(&self) -> &'static str;

    /// Registers every method. Called once for each reactor.
    fn register(&self, router: &mut Router);
}

/// The methods of a server on one reactor.
///
/// A service registers each method with the kind that it has; types follow from the handler:
///
/// ```
/// use std::sync::Arc;
/// use fulmar::{Raw, Request, Response, Router, Service, Status};
///
/// struct Echo(Arc<()>);
///
/// impl Service for Echo {
///     fn name(&self) -> &'static str {
///         "demo.Echo"
///     }
///
///     fn register(&self, router: &mut Router) {
///         router.unary("/demo.Echo/Echo", &self.0, |_, request: Request<Raw>| async move {
///             Ok::<_, Status>(Response::new(request.into_inner()))
///         });
///     }
/// }
/// ```
pub struct Router {
    pub(crate) routes: Routes,
    methods: Vec<Registered>,
    send_message_bytes_max: usize,
    /// What is around the methods that are being registered.
    chain: Chain,
    /// The first thing that went wrong while registering.
    failed: Option<ServerError>,
    cells: CellShelf,
    fates: Vec<Arc<CallFate>>,
    pub(crate) shelf: Arc<MetadataShelf>,
    pub(crate) arena: Arena,
    /// What handlers compress with that send streams.
    pub(crate) press: Option<Arc<Press>>,
    /// None where all handlers run on this reactor.
    pub(crate) placer: Option<Placer>,
    /// Orders that wait for other calls.
    #[expect(clippy::vec_box, reason = "it is the boxes that travel")]
    orders: Vec<Box<Order>>,
}

struct Registered {
    /// None for the method of all other paths.
    path: Option<&'static str>,
    kind: Kind,
    method: Box<dyn Method>,
}

/// What a method says of itself, asked once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// See [`Method::needs_cell`].
    pub(crate) needs_cell: bool,
    /// See [`Method::takes_one`].
    pub(crate) takes_one: bool,
    /// See [`Method::is_intercepted`].
    pub(crate) is_intercepted: bool,
    /// One message each way: see [`Method::serve`].
    pub(crate) is_unary: bool,
}

impl Router {
    /// Registers the methods of `services`.
    ///
    /// # Errors
    /// Two methods with the same path, which is what two services with the same name have.
    pub(crate) fn new(
        services: &[Box<dyn Service>],
        config: &Config,
        chain: &Chain,
    ) -> Result<Self, ServerError> {
        let mut router = Self {
            routes: Routes::new(),
            methods: Vec::new(),
            send_message_bytes_max: config.send_message_bytes_max,
            chain: chain.clone(),
            failed: None,
            cells: CellShelf::default(),
            fates: Vec::new(),
            shelf: Arc::default(),
            arena: Arena::default(),
            press: Press::new(&config.encodings),
            placer: None,
            orders: Vec::new(),
        };
        for service in services {
            service.register(&mut router);
            if let Some(error) = router.failed.take() {
                return Err(ServerError::new(format!("cannot register {}: {error}", service.name())));
            }
        }
        Ok(router)
    }

    /// Registers a method that takes one message and answers with one.
    ///
    /// Its metadata leaves with the reply, in one piece. A handler that has to send metadata long before is registered with
    /// [`server_streaming`](Self::server_streaming), which a client cannot tell from a method of this kind.
    pub fn unary<S, Req, Resp, F, Fut>(&mut self, path: &'static str, service: &Arc<S>, handler: F)
    where
        S: Send + Sync + 'static,
        Req: Payload + 'static,
        Resp: Payload + 'static,
        F: Fn(Arc<S>, Request<Req>) -> Fut + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + 'static,
    {
        let service = service.clone();
        self.add(
            path,
            TypedMethod::new(true, false, move |parts: Parts<Req>| {
                handler(service.clone(), Request::with_context(parts.message, parts.context))
            }),
        );
    }

    /// Registers a method that takes a stream of messages and answers with one.
    pub fn client_streaming<S, Req, Resp, F, Fut>(&mut self, path: &'static str, service: &Arc<S>, handler: F)
    where
        S: Send + Sync + 'static,
        Req: Payload + 'static,
        Resp: Payload + 'static,
        F: Fn(Arc<S>, Request<Streaming<Req>>) -> Fut + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + 'static,
    {
        let service = service.clone();
        self.add(
            path,
            TypedMethod::new(false, true, move |parts: Parts<Req>| {
                let requests = Streaming::new(parts.cell.unwrap_or_default(), None);
                handler(service.clone(), Request::with_context(requests, parts.context))
            }),
        );
    }

    /// Registers a method that takes one message and answers with a stream of them.
    pub fn server_streaming<S, Req, Resp, F, Fut>(&mut self, path: &'static str, service: &Arc<S>, handler: F)
    where
        S: Send + Sync + 'static,
        Req: Payload + 'static,
        Resp: Payload + 'static,
        F: Fn(Arc<S>, Request<Req>, Replies<Resp>) -> Fut + 'static,
        Fut: Future<Output = Result<(), Status>> + 'static,
    {
        let (service, bytes_max) = (service.clone(), self.send_message_bytes_max);
        self.add(
            path,
            TypedMethod::new(true, true, move |parts: Parts<Req>| {
                let replies = Replies::new(parts.cell.unwrap_or_default(), bytes_max);
                handler(service.clone(), Request::with_context(parts.message, parts.context), replies)
            }),
        );
    }

    /// Registers a method that streams both ways.
    pub fn bidi<S, Req, Resp, F, Fut>(&mut self, path: &'static str, service: &Arc<S>, handler: F)
    where
        S: Send + Sync + 'static,
        Req: Payload + 'static,
        Resp: Payload + 'static,
        F: Fn(Arc<S>, Request<Streaming<Req>>, Replies<Resp>) -> Fut + 'static,
        Fut: Future<Output = Result<(), Status>> + 'static,
    {
        let method = self.streaming_both_ways(service, handler);
        self.add(path, method);
    }

    /// Registers the handler of all methods that no service registers: what makes a proxy. It may be called for any path, which is
    /// [`Request::path`], and sees a call of any kind as one that streams both ways. There is at most one for a server.
    ///
    /// [`ServerBuilder::unknown_methods`](crate::ServerBuilder::unknown_methods) does this for a closure.
    pub fn unknown_methods<S, F, Fut>(&mut self, service: &Arc<S>, handler: F)
    where
        S: Send + Sync + 'static,
        F: Fn(Arc<S>, Request<Streaming<Raw>>, Replies<Raw>) -> Fut + 'static,
        Fut: Future<Output = Result<(), Status>> + 'static,
    {
        let method = self.streaming_both_ways(service, handler);
        let id = self.routes.add_fallback();
        self.insert(None, id, method);
    }

    fn streaming_both_ways<S, Req, Resp, F, Fut>(
        &self,
        service: &Arc<S>,
        handler: F,
    ) -> impl Method + 'static + use<S, Req, Resp, F, Fut>
    where
        S: Send + Sync + 'static,
        Req: Payload + 'static,
        Resp: Payload + 'static,
        F: Fn(Arc<S>, Request<Streaming<Req>>, Replies<Resp>) -> Fut + 'static,
        Fut: Future<Output = Result<(), Status>> + 'static,
    {
        let (service, bytes_max) = (service.clone(), self.send_message_bytes_max);
        TypedMethod::new(false, true, move |parts: Parts<Req>| {
            let cell = parts.cell.unwrap_or_default();
            let replies = Replies::new(cell.clone(), bytes_max);
            handler(
                service.clone(),
                Request::with_context(Streaming::new(cell, None), parts.context),
                replies,
            )
        })
    }

    fn add(&mut self, path: &'static str, method: impl Method + 'static) {
        let id = self.routes.add(path);
        self.insert(Some(path), id, method);
    }

    fn insert(
        &mut self,
        path: Option<&'static str>,
        id: Result<MethodId, RouteError>,
        method: impl Method + 'static,
    ) {
        match id {
            Ok(id) => {
                debug_assert_eq!(id.index(), self.methods.len(), "routes and methods are numbered alike");
                let mut method: Box<dyn Method> = Box::new(method);
                if !self.chain.is_empty() {
                    method = intercepted(method, self.chain.clone());
                }
                let kind = Kind {
                    needs_cell: method.needs_cell(),
                    takes_one: method.takes_one(),
                    is_intercepted: method.is_intercepted(),
                    is_unary: method.takes_one() && !method.needs_cell(),
                };
                self.methods.push(Registered { path, kind, method });
            }
            Err(error) => {
                self.failed.get_or_insert_with(|| ServerError::new(error.to_string()));
            }
        }
    }

    /// Registers methods with `chain` around them, inside of what is around them already.
    pub(super) fn inside(&mut self, chain: &Chain, register: impl FnOnce(&mut Self)) {
        let around = self.chain.around(chain);
        let outer = std::mem::replace(&mut self.chain, around);
        register(self);
        self.chain = outer;
    }

    pub(crate) const fn send_message_bytes_max(&self) -> usize {
        self.send_message_bytes_max
    }

    pub(crate) fn take_order(&mut self, method: MethodId) -> Box<Order> {
        let mut order = self.orders.pop().unwrap_or_else(|| Box::new(Order::new(method)));
        order.method = method;
        order
    }

    /// Keeps an order for another call.
    pub(crate) fn give_order(&mut self, mut order: Box<Order>) {
        order.reset();
        if self.orders.len() < ORDERS_MAX {
            self.orders.push(order);
        }
    }

    /// The path of a method; None for that of all other paths.
    pub(crate) fn path(&self, id: MethodId) -> Option<&'static str> {
        self.methods[id.index()].path
    }

    pub(crate) fn kind(&self, id: MethodId) -> Kind {
        self.methods[id.index()].kind
    }

    pub(crate) fn method(&mut self, id: MethodId) -> &mut dyn Method {
        &mut *self.methods[id.index()].method
    }

    pub(crate) fn method_and_arena(&mut self, id: MethodId) -> (&mut dyn Method, &mut Arena) {
        (&mut *self.methods[id.index()].method, &mut self.arena)
    }

    pub(crate) fn take_cell(&mut self) -> Arc<CallCell> {
        self.cells.take()
    }

    /// What calls have in use.
    pub(crate) fn counts(&mut self) -> Counts {
        Counts { cells: self.cells.in_use(), metadata_maps: self.shelf.in_use(), ..Counts::default() }
    }

    pub(crate) fn take_fate(&mut self) -> Arc<CallFate> {
        self.fates.pop().unwrap_or_default()
    }

    /// Keeps a fate for another call. Gives it back when somebody else holds it, who may wait for it.
    pub(crate) fn give_fate(&mut self, mut fate: Arc<CallFate>) -> Option<Arc<CallFate>> {
        if !CallFate::recycle(&mut fate) {
            return Some(fate);
        }
        if self.fates.len() < FATES_MAX {
            self.fates.push(fate);
        }
        None
    }

    /// Keeps a cell for another call, unless a handle of the user still holds it.
    pub(crate) fn give_cell(&mut self, cell: Arc<CallCell>) {
        self.cells.give(cell);
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("methods", &self.methods.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_fates_and_orders_wait_for_other_calls() {
        let mut router = Router::new(&[], &Config::default(), &Chain::default()).unwrap();
        let method = router.routes.add("/a.B/C").unwrap();
        let fates: Vec<_> = (0..=FATES_MAX).map(|_| router.take_fate()).collect();
        assert!(fates.into_iter().all(|fate| router.give_fate(fate).is_none()));
        assert_eq!(router.fates.len(), FATES_MAX);
        let orders: Vec<_> = (0..=ORDERS_MAX).map(|_| router.take_order(method)).collect();
        orders.into_iter().for_each(|order| router.give_order(order));
        assert_eq!(router.orders.len(), ORDERS_MAX);
    }
}
