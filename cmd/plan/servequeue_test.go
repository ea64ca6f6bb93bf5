package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestLoopbackAddressesAreKnown(t *testing.T) {
	for address, want := range map[string]bool{":8000": true, "localhost:1": true, "127.0.0.9:1": true, "[::1]:1": true, "off": true, "0.0.0.0:1": false, "[::]:1": false, "gpu1:1": false, "10.0.0.1:1": false} {
		if got := isLoopback(address); got != want {
			t.Errorf("%s: %v, expected %v", address, got, want)
		}
	}
}

// A queue on NATS without a key is told of at start.
func TestKeylessQueueIsTold(t *testing.T) {
	for key, want := range map[string]bool{"": true, "key.txt": false} {
		var said bytes.Buffer
		(&queueOptions{location: "nats://a", key: key}).warnKeyless(slog.New(slog.NewTextHandler(&said, nil)))
		if strings.Contains(said.String(), "whoever may write to the stream can stop an agent") != want {
			t.Errorf("key %q: said %q", key, &said)
		}
	}
}
