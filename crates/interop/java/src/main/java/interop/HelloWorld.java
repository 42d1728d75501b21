package interop;

import helloworld.GreeterGrpc;
import helloworld.Helloworld.HelloReply;
import helloworld.Helloworld.HelloRequest;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.TimeUnit;

/**
 * Hello world on grpc-java: {@code HelloWorld server}, which prints the port that it listens on, or
 * {@code HelloWorld client HOST:PORT}, which fails when the greeting is not what it should be.
 */
public final class HelloWorld {
  private static final Metadata.Key<String> ENCODING =
      Metadata.Key.of("grpc-encoding", Metadata.ASCII_STRING_MARSHALLER);

  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 1 && arguments[0].equals("server")) {
      serve();
    } else if (arguments.length == 2 && arguments[0].equals("client")) {
      call(arguments[1]);
    } else {
      System.err.println("usage: HelloWorld server | client HOST:PORT");
      System.exit(2);
    }
  }

  private static void serve() throws Exception {
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(new Greeter())
            .intercept(new PrintEncoding())
            .build()
            .start();
    System.out.println("listening on port " + server.getPort());
    server.awaitTermination();
  }

  /** Answers in gzip wherever the client takes it. */
  private static final class Greeter extends GreeterGrpc.GreeterImplBase {
    @Override
    public void sayHello(HelloRequest request, StreamObserver<HelloReply> replies) {
      ((ServerCallStreamObserver<HelloReply>) replies).setCompression("gzip");
      replies.onNext(HelloReply.newBuilder().setMessage("Hello " + request.getName()).build());
      replies.onCompleted();
    }

    @Override
    public void sayHelloStreamReply(HelloRequest request, StreamObserver<HelloReply> replies) {
      for (String greeting : new String[] {"Hello", "Hello again", "Goodbye"}) {
        String message = greeting + " " + request.getName();
        replies.onNext(HelloReply.newBuilder().setMessage(message).build());
      }
      replies.onCompleted();
    }
  }

  /** Tells which encoding the messages of a call have, for a test that wants to know. */
  private static final class PrintEncoding implements ServerInterceptor {
    @Override
    public <Q, R> ServerCall.Listener<Q> interceptCall(
        ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
      System.out.println(call.getMethodDescriptor().getBareMethodName() + ": grpc-encoding " + headers.get(ENCODING));
      return next.startCall(call, headers);
    }
  }

  private static void call(String address) throws Exception {
    ManagedChannel channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    try {
      var greeter = GreeterGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
      HelloReply reply = greeter.sayHello(HelloRequest.newBuilder().setName("world").build());
      System.out.println(reply.getMessage());
      if (!reply.getMessage().startsWith("Hello world")) {
        throw new IllegalStateException("this is no greeting of the world: " + reply.getMessage());
      }
      int count = 0;
      var greetings = greeter.withCompression("gzip").sayHelloStreamReply(HelloRequest.newBuilder().setName("world").build());
      while (greetings.hasNext()) {
        System.out.println(greetings.next().getMessage());
        count++;
      }
      if (count != 3) {
        throw new IllegalStateException("three greetings were expected, " + count + " came");
      }
    } finally {
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  private HelloWorld() {}
}
