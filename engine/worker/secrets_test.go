package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// secure is a join server behind TLS with a certificate of its own.
func secure(t *testing.T) (b *JoinServer, cert tls.Certificate, pin string) {
	t.Helper()
	cert, pin, err := Certificate(filepath.Join(t.TempDir(), "join.pem"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err = NewJoinServer(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}}), []byte(testToken), patient, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, cert, pin
}

// authority trusts one certificate for a name.
func authority(t *testing.T, cert tls.Certificate, name string) *tls.Config {
	t.Helper()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{RootCAs: pool, ServerName: name}
}

// A worker joins over TLS by the server's pin or by an authority, and runs.
func TestJoinOverTLS(t *testing.T) {
	b, cert, pin := secure(t)
	pinned, err := PinnedTLS(pin)
	if err != nil {
		t.Fatal(err)
	}
	for name, trust := range map[string]*tls.Config{"pin": pinned, "authority": authority(t, cert, "inferplan")} {
		t.Run(name, func(t *testing.T) {
			c := joinConfig(b)
			c.TLS, c.Kind = trust, "kind "+name
			stop := join(t, c)
			ctx, cancel := context.WithTimeout(context.Background(), patient)
			defer cancel()
			near := replayConfig(time.Millisecond)
			near.Hello.Device.Kind = c.Kind
			p, err := b.Start(ctx, t, near)
			if err != nil {
				t.Fatal(err)
			}
			layout := layoutOf(p.Stages[0], 1, 2)
			seg, err := NewSegment(7, 2*layout.Stride)
			if err != nil {
				t.Fatal(err)
			}
			defer seg.Close()
			if err := p.Attach(ctx, seg, true); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Prepare(ctx, layout); err != nil {
				t.Fatal(err)
			}
			if err := p.Send(RunCommand{ID: 5, Batch: 1, Segment: 7, InputOffset: uint64(layout.InputOffset(0)), OutputOffset: uint64(layout.OutputOffset(0))}); err != nil {
				t.Fatal(err)
			}
			if r := receive(t, p, 1)[0]; r.Code != OK || r.ID != 5 {
				t.Errorf("result %+v", r)
			}
			if err := p.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whom a host does not trust it leaves at once, and says why; whom the server
// does not trust never joins.
func TestJoinOverTLSIsRefused(t *testing.T) {
	b, _, pin := secure(t)
	_, other, otherPin := secure(t)
	plain := lobby(t, 0)
	pinned := func(pin string) *tls.Config {
		c, err := PinnedTLS(pin)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, c := range map[string]struct {
		at    *JoinServer
		trust *tls.Config
		token string
		want  error
		text  string
	}{
		"wrong authority":        {b, authority(t, other, "inferplan"), testToken, ErrCertificate, "certificate"},
		"authority, wrong name":  {b, authority(t, other, "another.host"), testToken, ErrCertificate, "certificate"},
		"what the system trusts": {b, &tls.Config{ServerName: "inferplan"}, testToken, ErrCertificate, "certificate"},
		"wrong pin":              {b, pinned(otherPin), testToken, ErrCertificate, "its pin is " + pin},
		"wrong token":            {b, pinned(pin), "another token of length", ErrToken, "token"},
		"server without TLS":     {plain, pinned(pin), testToken, ErrCertificate, "does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			j := joinConfig(c.at)
			j.TLS, j.Token = c.trust, []byte(c.token)
			if err := Join(context.Background(), j); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
			c.at.mu.Lock()
			defer c.at.mu.Unlock()
			if n := len(c.at.workers); n != 0 {
				t.Errorf("%d workers joined", n)
			}
		})
	}
}

// A client that speaks no TLS is cut off without a word of the protocol, even
// with the right token.
func TestPlainTextIsRefusedUnderTLS(t *testing.T) {
	b, _, _ := secure(t)
	conn, err := net.Dial("tcp", b.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	o := offer{Host: "h", Kind: "L4", Nonce: newNonce()}
	o.MAC = proofMAC([]byte(testToken), "worker", "", &o)
	frame, err := appendJSON(nil, TypeOffer, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(conn) // until the server closes
	if strings.Contains(string(got), "nonce") || strings.Contains(string(got), "mac") {
		t.Errorf("the server answered %q", got)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.workers) != 0 {
		t.Errorf("%d workers joined", len(b.workers))
	}
}

// The files are made once, for their owner only, and read from then on.
func TestSecretsAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "join.pem"), filepath.Join(dir, "token.txt")
	_, pin, err := Certificate(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := Certificate(file); err != nil || again != pin {
		t.Errorf("read again: pin %s, was %s; %v", again, pin, err)
	}
	token, made, err := Token(secret)
	if err != nil || !made || len(token) != 64 {
		t.Fatalf("token %q, made %v, %v", token, made, err)
	}
	if again, made, err := Token(secret); err != nil || made || string(again) != string(token) {
		t.Errorf("read again: %q, made %v, %v", again, made, err)
	}
	for _, path := range []string{file, secret} {
		if s, err := os.Stat(path); err != nil || s.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, s.Mode(), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// The pin is what others compute of the same file.
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(data)
	if block == nil || pinOf(block.Bytes) != pin {
		t.Error("the pin is not the hash of the file's certificate")
	}
	// Without its key, garbage, or where nothing can be written.
	if err := os.WriteFile(file, data[:len(data)-len(rest)], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, secret, filepath.Join(dir, "no", "join.pem")} {
		if _, _, err := Certificate(path); err == nil {
			t.Errorf("%s passes as a certificate", path)
		}
	}
	if _, _, err := Token(filepath.Join(dir, "no", "token.txt")); err == nil {
		t.Error("a token in a folder that is not there")
	}
}

func TestLooseSecretsAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, []byte(testToken), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o644: false, 0o660: false, 0o666: false, 0o604: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := Token(path)
		if ok != (err == nil) || !ok && !errors.Is(err, ErrSecret) {
			t.Errorf("mode %v: %v", mode, err)
		}
		if _, _, err := Certificate(path); !ok && !errors.Is(err, ErrSecret) {
			t.Errorf("mode %v of a certificate: %v", mode, err)
		}
	}
	if err := os.WriteFile(path, make([]byte, maxSecret+1), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Chmod(path, 0o600)
	if _, err := ReadSecret(path); !errors.Is(err, ErrSecret) {
		t.Errorf("a large file: %v", err)
	}
}

func TestPinsAreSHA256Only(t *testing.T) {
	hash := strings.Repeat("aB", 32)
	colons := strings.TrimSuffix(strings.Repeat("AB:", 32), ":")
	for pin, ok := range map[string]bool{
		"sha256:" + hash: true, " SHA256:" + colons + "\n": true, hash: false, "sha256:" + hash[2:]: false, "sha1:" + hash: false, "": false, "sha256:" + strings.Repeat("xy", 32): false,
	} {
		if _, err := PinnedTLS(pin); ok != (err == nil) {
			t.Errorf("%q: %v", pin, err)
		}
	}
}
