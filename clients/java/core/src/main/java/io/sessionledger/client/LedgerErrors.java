package io.sessionledger.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import io.grpc.Status.Code;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;

/** The errors of the service. */
public final class LedgerErrors {
  /** A stream that lived longer had a token that was accepted, and has ended since. */
  private static final Duration ACCEPTED_AFTER = Duration.ofSeconds(1);

  private LedgerErrors() {}

  /** For programs: STALE_EPOCH, SESSION_NOT_FOUND and so on; empty: the service has not said one. */
  public static String reason(Throwable error) {
    return reason(StatusProto.fromThrowable(error));
  }

  static String reason(Status status) {
    return detail(status, ErrorInfo.class).map(ErrorInfo::getReason).orElse("");
  }

  static WriterState stateAfter(Throwable error) {
    return switch (reason(error)) {
      case "STALE_EPOCH", "STREAM_REPLACED" -> WriterState.FENCED;
      default -> WriterState.ENDED;
    };
  }

  /** How long to wait before the same call can succeed; empty: it will be the same next time. */
  static Optional<Duration> pauseAfter(Throwable error, Duration lived) {
    Code code = io.grpc.Status.fromThrowable(error).getCode();
    Optional<RetryInfo> asked = detail(StatusProto.fromThrowable(error), RetryInfo.class);
    boolean isMomentary =
        switch (code) {
          case UNAVAILABLE, DEADLINE_EXCEEDED -> true;
          case UNAUTHENTICATED -> lived.compareTo(ACCEPTED_AFTER) > 0;
          default -> asked.isPresent();
        };
    if (!isMomentary) return Optional.empty();
    Duration pause = Duration.ofMillis(ThreadLocalRandom.current().nextLong(50, 500));
    return Optional.of(
        asked
            .map(RetryInfo::getRetryDelay)
            .map(delay -> pause.plusSeconds(delay.getSeconds()).plusNanos(delay.getNanos()))
            .orElse(pause));
  }

  private static <T extends Message> Optional<T> detail(Status status, Class<T> type) {
    if (status == null) return Optional.empty();
    for (Any detail : status.getDetailsList()) {
      if (!detail.is(type)) continue;
      try {
        return Optional.of(detail.unpack(type));
      } catch (InvalidProtocolBufferException error) {
        return Optional.empty(); // A service of a later version.
      }
    }
    return Optional.empty();
  }
}
