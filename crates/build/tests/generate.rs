//! What is generated, and with which options. That the code compiles is tested in `fulmar-examples`, which has the crate
//! `fulmar` to compile it against.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fulmar_build::{Builder, configure};

const PROTO: &str = "../../proto";
const CLASHES: &str = "tests/protos/clashes";

fn generate(builder: Builder, folder: &str, file: &str) -> BTreeMap<String, String> {
    builder.generate_to_string(&[Path::new(folder).join(file)], &[folder]).expect("the file is right")
}

fn helloworld(builder: Builder) -> String {
    generate(builder, PROTO, "helloworld.proto").remove("helloworld.rs").expect("the package is helloworld")
}

fn clashes(builder: Builder, name: &str) -> String {
    let code = generate(builder, CLASHES, &format!("{name}.proto"));
    code[&format!("clashes.{name}.rs")].clone()
}

/// Without regard to line breaks and indentation.
fn squeeze(code: &str) -> String {
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_has(code: &str, part: &str) {
    assert!(squeeze(code).contains(&squeeze(part)), "no\n{part}\nin\n{code}");
}

/// An empty folder of its own for each test.
fn fresh_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn server_trait_has_a_method_of_each_kind() {
    let code = generate(configure(), PROTO, "route_guide.proto")["routeguide.rs"].clone();
    assert_has(&code, "pub mod route_guide_server {");
    assert_has(
        &code,
        "fn get_feature( &self, request: ::fulmar::Request<super::Point>, )
         -> impl ::core::future::Future<
             Output = ::core::result::Result<::fulmar::Response<super::Feature>, ::fulmar::Status>, >;",
    );
    assert_has(
        &code,
        "fn list_features( &self, request: ::fulmar::Request<super::Rectangle>,
             replies: &mut ::fulmar::Replies<super::Feature>, )
         -> impl ::core::future::Future< Output = ::core::result::Result<(), ::fulmar::Status>, >;",
    );
    assert_has(
        &code,
        "fn record_route( &self, requests: ::fulmar::Request<::fulmar::Streaming<super::Point>>, )",
    );
    assert_has(
        &code,
        "fn route_chat( &self, requests: ::fulmar::Request<::fulmar::Streaming<super::RouteNote>>,
             replies: &mut ::fulmar::Replies<super::RouteNote>, )",
    );
}

#[test]
fn methods_are_registered_under_the_names_of_the_proto() {
    let code = helloworld(configure());
    assert_has(&code, r#"pub const NAME: &'static str = "helloworld.Greeter";"#);
    assert_has(
        &code,
        r#"router.unary( "/helloworld.Greeter/SayHello", &self.service,
            |service, request| async move { <S as Greeter>::say_hello(&service, request).await }, );"#,
    );
    assert_has(
        &code,
        r#"router.server_streaming( "/helloworld.Greeter/SayHelloStreamReply", &self.service,
            |service, request, mut replies| async move {
                <S as Greeter>::say_hello_stream_reply(&service, request, &mut replies).await }, );"#,
    );
    assert_has(&generate(configure(), CLASHES, "no_package.proto")["_.rs"], "\"/LooseService/Exchange\"");
}

#[test]
fn clients_call_by_the_names_of_the_proto() {
    let code = generate(configure(), PROTO, "route_guide.proto")["routeguide.rs"].clone();
    assert_has(
        &code,
        r#"pub async fn get_feature( &self, request: impl ::fulmar::IntoRequest<super::Point>, )
            -> ::core::result::Result< ::fulmar::Response<super::Feature>, ::fulmar::Status, > {
            self.channel.unary("/routeguide.RouteGuide/GetFeature", request).await }"#,
    );
    assert_has(
        &code,
        "-> ::core::result::Result< ::fulmar::Upload<super::Point, super::RouteSummary>, ::fulmar::Status, >",
    );
    assert_has(
        &code,
        r#"pub fn route_chat( &mut self, request: impl ::fulmar::IntoRequest<()>, )
            -> ::core::result::Result<
                ::fulmar::blocking::Duplex<'_, super::super::RouteNote, super::super::RouteNote>, ::fulmar::Status,
            > { self.channel.bidi("/routeguide.RouteGuide/RouteChat", request) }"#,
    );
}

#[test]
fn comments_are_carried_over_to_trait_methods_and_clients() {
    let code = helloworld(configure());
    assert_eq!(code.matches("/// Says hello.").count(), 3, "trait and two clients");
    assert_eq!(code.matches("/// Answers one name with one greeting.").count(), 3, "trait and two clients");
    assert_eq!(code.matches("/// Who is to be greeted.").count(), 1);
    assert!(!code.contains("fulmar-comment"), "{code}");

    let code = clashes(configure(), "comments");
    assert_has(&code, r"/// The rpc `Explain` answers \[Comment\] with \<Comment>.");
    assert_has(&code, "/// Only behind it.");
    assert!(!code.contains("A licence"), "{code}");
    assert!(!code.contains("```rust"), "{code}");
}

#[test]
fn deprecated_rpcs_are_deprecated_everywhere() {
    let code = clashes(configure(), "comments");
    assert_has(&code, "/// Do not call this. #[deprecated] fn old(");
    assert_has(&code, "/// Do not call this. #[deprecated] pub async fn old(");
    assert_has(&code, "/// Do not call this. #[deprecated] pub fn old(");
    assert_has(&code, "#[deprecated] pub trait OldService");
}

#[test]
fn client_methods_do_not_hide_what_every_client_has() {
    let code = clashes(configure(), "rpc_names");
    for name in ["new", "connect", "clone"] {
        assert_has(&code, &format!("fn {name}( &self,"));
        assert_has(&code, &format!("pub async fn call_{name}( &self,"));
        assert_has(&code, &format!("pub fn call_{name}( &mut self,"));
    }
    assert_has(&code, "pub async fn call_new_( &self,");
    assert_has(&code, "pub async fn r#type( &self,");
    assert_has(&code, "pub async fn self_( &self,");
    assert_has(&code, "/// Calls `clashes.rpc_names.Methods.New`.");
}

#[test]
fn service_modules_do_not_collide_with_those_of_messages_and_packages() {
    let code = clashes(configure(), "service_names");
    assert_has(&code, "pub mod echo_server_ {");
    assert_has(&code, "pub mod echo_client_ {");
    assert_has(&code, "pub struct SServer<T> {");
    assert_has(&code, "pub struct SelfServer<S> {");

    let files = [format!("{CLASHES}/nested_parent.proto"), format!("{CLASHES}/nested_module.proto")];
    let code = configure().generate_to_string(&files, &[CLASHES]).unwrap();
    assert_has(&code["clashes.nested.rs"], "pub mod nested_server_ {");
    assert_has(&code["clashes.nested.rs"], "pub mod nested_client {");
}

#[test]
fn sides_can_be_left_out() {
    let code = helloworld(configure().build_server(false));
    assert!(!code.contains("greeter_server") && code.contains("mod greeter_client"));
    let code = helloworld(configure().build_client(false));
    assert!(
        code.contains("greeter_server") && code.contains("mod blocking") && !code.contains("pub async fn")
    );
    let code = helloworld(configure().build_blocking(false));
    assert!(code.contains("pub async fn say_hello") && !code.contains("mod blocking"));
    let code = helloworld(configure().build_server(false).build_client(false).build_blocking(false));
    assert!(code.contains("struct HelloRequest") && !code.contains("fulmar"));
}

#[test]
fn types_and_fields_follow_the_options() {
    let code = helloworld(
        configure()
            .type_attribute(".helloworld.HelloReply", "#[derive(Ord)]")
            .field_attribute(".helloworld.HelloRequest.name", "#[serde(default)]")
            .extern_path(".helloworld.HelloRequest", "::elsewhere::Request"),
    );
    assert_has(&code, "#[derive(Ord)] #[derive(Clone");
    assert!(!code.contains("pub struct HelloRequest"), "{code}");
    assert_has(&code, "request: ::fulmar::Request<::elsewhere::Request>");
    let code = helloworld(configure().enable_type_names(true));
    assert_has(&code, r#"impl ::prost::Name for HelloRequest { const NAME: &'static str = "HelloRequest";"#);
    assert!(!helloworld(configure()).contains("::prost::Name"), "only if asked for");
    let code = helloworld(configure().field_attribute("name", "#[serde(default)]"));
    assert_has(&code, "#[serde(default)] pub name:");

    let code = clashes(configure().bytes(&[".clashes.message_names.Streaming"]), "message_names");
    assert_has(&code, "pub data: ::prost::bytes::Bytes,");
    let code = clashes(configure().btree_map(&["."]), "message_names");
    assert_has(&code, "::prost::alloc::collections::BTreeMap<");
}

#[test]
fn well_known_types_are_those_of_rust_and_prost() {
    let code = clashes(configure(), "well_known");
    assert_has(&code, "request: ::fulmar::Request<()>,");
    assert_has(&code, "::fulmar::Replies<::prost_types::Timestamp>");
    assert_has(&code, "request: ::fulmar::Request<::prost::alloc::string::String>");
    let code = generate(configure().compile_well_known_types(true), CLASHES, "well_known.proto");
    assert_has(
        &code["clashes.well_known.rs"],
        "request: ::fulmar::Request<super::super::super::google::protobuf::Empty>,",
    );
    assert!(code.contains_key("google.protobuf.rs"));
}

#[test]
fn compile_writes_each_package_the_include_file_and_the_descriptors() {
    let folder = fresh_folder("compile_writes");
    let descriptors = folder.join("set.bin");
    let compile = || {
        configure()
            .out_dir(&folder)
            .include_file("protos.rs")
            .file_descriptor_set_path(&descriptors)
            .emit_rerun_if_changed(false)
            .compile(&[format!("{CLASHES}/nested.proto")], &[CLASHES])
            .expect("the file is right");
    };
    compile();
    assert_eq!(
        names_in(&folder),
        [
            "clashes.nested.r#mod.rs",
            "clashes.nested.r#type.r#async.v1.rs",
            "clashes.nested.rs",
            "protos.rs",
            "set.bin"
        ]
    );
    let index = fs::read_to_string(folder.join("protos.rs")).unwrap();
    assert_has(
        &index,
        "pub mod r#async { pub mod v1 { include!(\"clashes.nested.r#type.r#async.v1.rs\"); } }",
    );
    let set: prost_types::FileDescriptorSet =
        protox::prost::Message::decode(fs::read(&descriptors).unwrap().as_slice()).unwrap();
    assert_eq!(set.file.len(), 3);

    let written = |name: &str| fs::metadata(folder.join(name)).unwrap().modified().unwrap();
    let before = written("clashes.nested.rs");
    compile();
    assert_eq!(written("clashes.nested.rs"), before, "an unchanged file is left alone");
}

/// Set for the child process of the next test.
const ALONE: &str = "FULMAR_BUILD_TEST_ALONE";

#[test]
fn r74_generation_needs_no_program_and_writes_only_to_its_output_folder() {
    if std::env::var_os(ALONE).is_some() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alone");
        fulmar_build::compile_protos(&[folder.join("in/helloworld.proto")], &[folder.join("in")]).unwrap();
        return;
    }
    let folder = fresh_folder("alone");
    let (input, output) = (folder.join("in"), folder.join("out"));
    fs::create_dir(&input).unwrap();
    fs::create_dir(&output).unwrap();
    fs::copy(format!("{PROTO}/helloworld.proto"), input.join("helloworld.proto")).unwrap();
    set_read_only(&input, true);

    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "r74_generation_needs_no_program_and_writes_only_to_its_output_folder"])
        .env_clear()
        .env(ALONE, "1")
        .env("PATH", "")
        .env("PROTOC", "/no such program")
        .env("OUT_DIR", &output)
        .current_dir(&input)
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(names_in(&input), ["helloworld.proto"]);
    assert_eq!(names_in(&output), ["helloworld.rs"]);
    set_read_only(&input, false);
}

fn set_read_only(folder: &Path, yes: bool) {
    let mut permissions = fs::metadata(folder).unwrap().permissions();
    permissions.set_readonly(yes);
    fs::set_permissions(folder, permissions).unwrap();
}

#[test]
fn missing_output_folder_is_explained() {
    if std::env::var_os("OUT_DIR").is_some() {
        return;
    }
    let error = configure().compile(&[format!("{PROTO}/helloworld.proto")], &[PROTO]).unwrap_err();
    assert!(error.to_string().contains("call `out_dir`"), "{error}");
}
