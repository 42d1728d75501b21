// Hello world of grpc-go over mutual TLS: a server, and a client for it or for another one.
//
//	secure server -port=0 -ca=ca.pem -cert=server.pem -key=server.key
//	secure client -addr=localhost:50051 -ca=ca.pem [-cert=client.pem -key=client.key]
//
// The server lets in clients only that show a certificate of the authority, and greets them by its common name.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
	"google.golang.org/grpc/peer"
)

var (
	port = flag.Int("port", 50051, "the port of the server; 0 picks one")
	addr = flag.String("addr", "localhost:50051", "the server to call")
	ca   = flag.String("ca", "", "the authority that signs certificates, PEM")
	cert = flag.String("cert", "", "the own certificate, PEM")
	key  = flag.String("key", "", "its key, PEM")
)

type greeter struct {
	pb.UnimplementedGreeterServer
}

func (greeter) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil, errors.New("there is no peer")
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil, errors.New("the peer has shown no certificate")
	}
	name := info.State.PeerCertificates[0].Subject.CommonName
	return &pb.HelloReply{Message: fmt.Sprintf("Hello %s of %s", in.GetName(), name)}, nil
}

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("secure server or secure client"))
	}
	role := os.Args[1]
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	run := map[string]func() error{"server": serve, "client": call}[role]
	if run == nil {
		fail(fmt.Errorf("%s: secure server or secure client", role))
	}
	if err := run(); err != nil {
		fail(err)
	}
}

func serve() error {
	authority, own, err := read()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return err
	}
	config := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority, Certificates: own}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	pb.RegisterGreeterServer(server, greeter{})
	fmt.Printf("listening on %s\n", listener.Addr())
	return server.Serve(listener)
}

func call() error {
	authority, own, err := read()
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: authority, Certificates: own}
	channel, err := grpc.NewClient(*addr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return err
	}
	defer channel.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	reply, err := pb.NewGreeterClient(channel).SayHello(ctx, &pb.HelloRequest{Name: "world"})
	if err != nil {
		return err
	}
	fmt.Println(reply.GetMessage())
	return nil
}

// read gives the authority, and the own certificate where there is one.
func read() (*x509.CertPool, []tls.Certificate, error) {
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return nil, nil, err
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("%s: no certificate", *ca)
	}
	if *cert == "" {
		return authority, nil, nil
	}
	own, err := tls.LoadX509KeyPair(*cert, *key)
	return authority, []tls.Certificate{own}, err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "secure:", err)
	os.Exit(1)
}
