// java.net.http with its defaults: it asks for h2c (Connection: Upgrade, HTTP2-Settings) with every request that has no
// connection yet. Requests side by side, and a body of unknown length in chunks. Usage: java JavaHttpClient.java URL

import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class JavaHttpClient {
  static final String PATH = "/v1/models/half_plus_two:predict";
  static final HttpClient CLIENT = HttpClient.newHttpClient();

  static CompletableFuture<HttpResponse<String>> post(String url, BodyPublisher body) {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(url)).header("Content-Type", "application/json").POST(body).build();
    return CLIENT.sendAsync(request, HttpResponse.BodyHandlers.ofString());
  }

  static BodyPublisher text(String text) {
    return BodyPublishers.ofString(text);
  }

  // The last of the predictions in {"predictions": [...]}.
  static String last(String document) {
    int end = document.indexOf(']');
    int start = Math.max(document.lastIndexOf(',', end), document.lastIndexOf('[', end));
    return document.substring(start + 1, end).trim();
  }

  public static void main(String[] arguments) {
    String url = arguments[0] + PATH;
    List<CompletableFuture<HttpResponse<String>>> waiting =
        IntStream.range(0, 200)
            .mapToObj(number -> post(url, text("{\"instances\": [" + number + "]}")))
            .collect(Collectors.toList());
    String predictions =
        waiting.stream().map(reply -> last(reply.join().body())).collect(Collectors.joining(", "));

    String rows = IntStream.range(0, 20000).mapToObj(String::valueOf).collect(Collectors.joining(","));
    String large = "{\"instances\": [" + rows + "]}";
    String whole = last(post(url, text(large)).join().body());
    BodyPublisher unknown = BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(large.getBytes()));
    if (!whole.equals(last(post(url, unknown).join().body()))) {
      throw new AssertionError("a body in chunks has another answer");
    }

    int missing = post(url.replace("half_plus_two", "nobody"), text("{\"instances\": [1]}")).join().statusCode();
    int malformed = post(url, text("{\"instances\": [")).join().statusCode();
    System.out.printf(
        "{\"predictions\": [%s], \"missing\": %d, \"malformed\": %d, \"last_of_large\": %s}%n",
        predictions, missing, malformed, whole);
  }
}
