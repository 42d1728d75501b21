package interop;

import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import routeguide.RouteGuideGrpc;
import routeguide.RouteGuideOuterClass.Feature;
import routeguide.RouteGuideOuterClass.Point;
import routeguide.RouteGuideOuterClass.Rectangle;
import routeguide.RouteGuideOuterClass.RouteNote;
import routeguide.RouteGuideOuterClass.RouteSummary;

/**
 * Route guide on grpc-java: {@code RouteGuide server}, which prints the port that it listens on, or
 * {@code RouteGuide client HOST:PORT}, which makes the four kinds of call and fails when an answer is not what it should be.
 */
public final class RouteGuide {
  /** The first place that Fulmar's route guide knows. */
  private static final Point KNOWN = point(571775356, -78674518);

  private static final String KNOWN_NAME = "Gannet Ford";

  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 1 && arguments[0].equals("server")) {
      serve();
    } else if (arguments.length == 2 && arguments[0].equals("client")) {
      travel(arguments[1]);
    } else {
      System.err.println("usage: RouteGuide server | client HOST:PORT");
      System.exit(2);
    }
  }

  private static void serve() throws Exception {
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()).addService(new Guide()).build().start();
    System.out.println("listening on port " + server.getPort());
    server.awaitTermination();
  }

  /** Knows one place, and keeps the notes that were left. */
  private static final class Guide extends RouteGuideGrpc.RouteGuideImplBase {
    private final List<RouteNote> notes = new ArrayList<>();

    @Override
    public void getFeature(Point point, StreamObserver<Feature> replies) {
      String name = point.equals(KNOWN) ? KNOWN_NAME : "";
      replies.onNext(Feature.newBuilder().setName(name).setLocation(point).build());
      replies.onCompleted();
    }

    @Override
    public void listFeatures(Rectangle area, StreamObserver<Feature> replies) {
      replies.onNext(Feature.newBuilder().setName(KNOWN_NAME).setLocation(KNOWN).build());
      replies.onCompleted();
    }

    @Override
    public StreamObserver<Point> recordRoute(StreamObserver<RouteSummary> replies) {
      return new Reader<Point>(replies) {
        private int points = 0;

        @Override
        public void onNext(Point point) {
          points++;
        }

        @Override
        public void onCompleted() {
          replies.onNext(RouteSummary.newBuilder().setPointCount(points).build());
          replies.onCompleted();
        }
      };
    }

    @Override
    public StreamObserver<RouteNote> routeChat(StreamObserver<RouteNote> replies) {
      return new Reader<RouteNote>(replies) {
        @Override
        public void onNext(RouteNote note) {
          synchronized (notes) {
            notes.stream().filter(left -> left.getLocation().equals(note.getLocation())).forEach(replies::onNext);
            notes.add(note);
          }
        }

        @Override
        public void onCompleted() {
          replies.onCompleted();
        }
      };
    }
  }

  /** Reads requests; a client that gives up ends the call. */
  private abstract static class Reader<T> implements StreamObserver<T> {
    private final StreamObserver<?> replies;

    Reader(StreamObserver<?> replies) {
      this.replies = replies;
    }

    @Override
    public void onError(Throwable error) {
      replies.onError(Status.fromThrowable(error).asException());
    }
  }

  private static void travel(String address) throws Exception {
    ManagedChannel channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    try {
      ask(channel);
      record(channel);
      chat(channel);
    } finally {
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  /** One reply, and a stream of them. */
  private static void ask(ManagedChannel channel) {
    var guide = RouteGuideGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
    Feature feature = guide.getFeature(KNOWN);
    check(feature.getName().equals(KNOWN_NAME), "the known place, not " + feature.getName());
    check(guide.getFeature(point(0, 0)).getName().isEmpty(), "nothing at 0, 0");
    Rectangle area =
        Rectangle.newBuilder().setLo(point(570000000, -80000000)).setHi(point(590000000, -60000000)).build();
    int count = 0;
    for (var features = guide.listFeatures(area); features.hasNext(); features.next()) {
      count++;
    }
    check(count > 0, "places in the area");
    System.out.println(count + " places");
  }

  /** A stream of requests. */
  private static void record(ManagedChannel channel) throws Exception {
    Collector<RouteSummary> summary = new Collector<>();
    var points = RouteGuideGrpc.newStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS).recordRoute(summary);
    for (int i = 0; i < 100; i++) {
      points.onNext(KNOWN);
    }
    points.onCompleted();
    check(summary.all().get(0).getPointCount() == 100, "100 points, not " + summary.all());
  }

  /** A stream each way. */
  private static void chat(ManagedChannel channel) throws Exception {
    Collector<RouteNote> received = new Collector<>();
    var notes = RouteGuideGrpc.newStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS).routeChat(received);
    for (String message : new String[] {"first", "second", "third"}) {
      notes.onNext(RouteNote.newBuilder().setLocation(point(1, 2)).setMessage(message).build());
    }
    notes.onCompleted();
    // The second note meets the first, the third meets both.
    var messages = received.all().stream().map(RouteNote::getMessage).toList();
    check(messages.equals(List.of("first", "first", "second")), "the notes there before, not " + messages);
  }

  /** Gathers replies until the call ends. */
  private static final class Collector<T> implements StreamObserver<T> {
    private final List<T> replies = new ArrayList<>();
    private final CompletableFuture<List<T>> ended = new CompletableFuture<>();

    List<T> all() throws Exception {
      return ended.get(10, TimeUnit.SECONDS);
    }

    @Override
    public void onNext(T reply) {
      replies.add(reply);
    }

    @Override
    public void onError(Throwable error) {
      ended.completeExceptionally(error);
    }

    @Override
    public void onCompleted() {
      ended.complete(replies);
    }
  }

  private static Point point(int latitude, int longitude) {
    return Point.newBuilder().setLatitude(latitude).setLongitude(longitude).build();
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new IllegalStateException("expected: " + what);
    }
  }

  private RouteGuide() {}
}
