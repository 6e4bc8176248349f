import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.netty.NettyChannelBuilder;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * grpc-java: all calls of a file at once on one channel. Usage: java -cp JARS GrpcJava.java ADDRESS FILE
 * A line of the file is KIND METHOD HEX; a line of the output is OK HEX, or the status code and its text.
 */
class GrpcJava {
    private static final HexFormat HEX = HexFormat.of();

    private static final MethodDescriptor.Marshaller<byte[]> BYTES = new MethodDescriptor.Marshaller<>() {
        public InputStream stream(byte[] value) {
            return new ByteArrayInputStream(value);
        }

        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    };

    static CompletableFuture<String> call(ManagedChannel channel, boolean first, String method, byte[] message) {
        var kind = first ? MethodDescriptor.MethodType.SERVER_STREAMING : MethodDescriptor.MethodType.UNARY;
        var descriptor = MethodDescriptor.newBuilder(BYTES, BYTES).setType(kind).setFullMethodName(method).build();
        var call = channel.newCall(descriptor, CallOptions.DEFAULT.withDeadlineAfter(60, TimeUnit.SECONDS));
        var answer = new CompletableFuture<String>();
        call.start(new ClientCall.Listener<byte[]>() {
            private String got;

            public void onMessage(byte[] reply) {
                got = "OK " + HEX.formatHex(reply);
                if (first) {
                    answer.complete(got);
                    call.cancel("enough", null);
                }
            }

            public void onClose(Status status, Metadata trailers) {
                answer.complete(status.isOk() ? got : status.getCode() + " " + status.getDescription());
            }
        }, new Metadata());
        call.sendMessage(message);
        call.halfClose();
        call.request(2);
        return answer;
    }

    public static void main(String[] arguments) throws Exception {
        ManagedChannel channel = NettyChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
        List<CompletableFuture<String>> answers = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[1]))) {
            String[] words = line.split(" ");
            byte[] message = words.length > 2 ? HEX.parseHex(words[2]) : new byte[0];
            answers.add(call(channel, words[0].equals("first"), words[1].substring(1), message));
        }
        for (CompletableFuture<String> each : answers) {
            System.out.println(each.get());
        }
        channel.shutdown();
    }
}
