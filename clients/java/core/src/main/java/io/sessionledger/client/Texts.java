package io.sessionledger.client;

/** Texts of Java can have half of a surrogate pair, for example the last token of a part of a stream. */
final class Texts {
  private Texts() {}

  private static boolean isWhole(String text) {
    return firstHalf(text, 0) < 0;
  }

  /** A text for people with U+FFFD in the place of such halves. */
  static String whole(String text) {
    if (isWhole(text)) return text;
    StringBuilder whole = new StringBuilder(text);
    for (int at = firstHalf(text, 0); at >= 0; at = firstHalf(text, at + 1))
      whole.setCharAt(at, '\ufffd');
    return whole.toString();
  }

  /** JSON text with such halves as escapes: UTF-8 has none for them. */
  static String escaped(String json) {
    int at = firstHalf(json, 0);
    if (at < 0) return json;
    StringBuilder escaped = new StringBuilder(json.length() + 16);
    int from = 0;
    for (; at >= 0; at = firstHalf(json, from)) {
      escaped.append(json, from, at).append("\\u%04x".formatted((int) json.charAt(at)));
      from = at + 1;
    }
    return escaped.append(json, from, json.length()).toString();
  }

  private static int firstHalf(String text, int from) {
    for (int at = from; at < text.length(); at++) {
      if (!Character.isSurrogate(text.charAt(at))) continue;
      boolean isPair =
          at + 1 < text.length() && Character.isSurrogatePair(text.charAt(at), text.charAt(at + 1));
      if (!isPair) return at;
      at++;
    }
    return -1;
  }
}
