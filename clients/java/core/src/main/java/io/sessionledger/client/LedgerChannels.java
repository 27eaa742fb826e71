package io.sessionledger.client;

import io.grpc.CallCredentials;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.SecurityLevel;
import io.grpc.Status;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** How to connect to a service. */
public final class LedgerChannels {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  private LedgerChannels() {}

  /** A channel over TLS, with the authorities of the JDK. */
  public static ManagedChannelBuilder<?> secure(String target) {
    return pinging(ManagedChannelBuilder.forTarget(target));
  }

  /** A channel without TLS, which sends no token. */
  public static ManagedChannelBuilder<?> plaintext(String target) {
    return pinging(ManagedChannelBuilder.forTarget(target).usePlaintext());
  }

  /** With the largest payload that a service can be configured to take, 16 MiB. */
  private static final int ANSWER_BYTES_MAX = 16_801_520;

  /** Only a ping finds out that the peer of a silent stream is gone. */
  private static ManagedChannelBuilder<?> pinging(ManagedChannelBuilder<?> builder) {
    return builder
        .maxInboundMessageSize(ANSWER_BYTES_MAX)
        .keepAliveTime(20, TimeUnit.SECONDS)
        .keepAliveTimeout(10, TimeUnit.SECONDS);
  }

  /** The source is asked for a bearer token before each call and each stream. */
  public static CallCredentials token(Supplier<String> source) {
    return new Token(source);
  }

  private static final class Token extends CallCredentials {
    private final Supplier<String> source;

    Token(Supplier<String> source) {
      this.source = source;
    }

    @Override
    public void applyRequestMetadata(RequestInfo request, Executor executor, MetadataApplier applier) {
      if (request.getSecurityLevel() != SecurityLevel.PRIVACY_AND_INTEGRITY) {
        applier.fail(Status.UNAUTHENTICATED.withDescription("a token needs TLS"));
        return;
      }
      executor.execute(() -> apply(applier));
    }

    private void apply(MetadataApplier applier) {
      try {
        Metadata headers = new Metadata();
        headers.put(AUTHORIZATION, "Bearer " + source.get().strip());
        applier.apply(headers);
      } catch (RuntimeException error) {
        // A source that fails is one to ask again.
        applier.fail(Status.UNAVAILABLE.withDescription("the source of tokens failed").withCause(error));
      }
    }
  }
}
