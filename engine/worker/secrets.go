package worker

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrCertificate is returned when the host does not trust the server's certificate, or the server has none.
var ErrCertificate = errors.New("the server's certificate was refused")

// pinPrefix names the hash function of a pin.
const pinPrefix = "sha256:"

// ErrSecret is returned when others than its owner may read a file with a secret.
var ErrSecret = errors.New("the file is not kept like a secret")

// ReadSecret reads a file with a token or a key. It returns ErrSecret if others may read the file, if its group
// may write it, or if its owner is neither this user nor root. A pipe or another special file has no mode and is
// not checked.
func ReadSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() {
		if mode := info.Mode().Perm(); mode&0o027 != 0 {
			return nil, fmt.Errorf("%w: %s: found mode %04o, expected 0600, or 0640 for a group that reads it: chmod 600 %s", ErrSecret, path, mode, path)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() && st.Uid != 0 {
			return nil, fmt.Errorf("%w: %s: found an owner with the number %d, expected this user, %d, or root", ErrSecret, path, st.Uid, os.Geteuid())
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSecret {
		return nil, fmt.Errorf("%w: %s: found more than %d bytes", ErrSecret, path, maxSecret)
	}
	return data, nil
}

// maxSecret is more than any token, or chain of certificates with a key, takes, in bytes.
const maxSecret = 1 << 20

// Certificate reads a server's certificate and its key from a file. If there is no file, it makes one, self-signed
// and readable only by its owner. Hosts trust the certificate by its pin.
func Certificate(path string) (cert tls.Certificate, pin string, err error) {
	data, err := ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		if data, err = makeCertificate(time.Now()); err == nil {
			err = writeSecret(path, data)
		}
		if errors.Is(err, fs.ErrExist) { // another server made the file first
			data, err = ReadSecret(path)
		}
	}
	if err != nil {
		return cert, "", fmt.Errorf("certificate of the workers' address: %w", err)
	}
	if cert, err = tls.X509KeyPair(data, data); err != nil {
		return cert, "", fmt.Errorf("%s: expected a certificate and its key (PEM), as plan serve makes them where the file is not there: %w", path, err)
	}
	return cert, pinOf(cert.Certificate[0]), nil
}

// Token reads the token that both sides of a join know. If there is no file, it makes one, and created is true.
func Token(path string) (token []byte, created bool, err error) {
	data, err := ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = writeSecret(path, []byte(newNonce()+"\n")); err == nil || errors.Is(err, fs.ErrExist) {
			created = err == nil
			data, err = ReadSecret(path)
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("token of the workers: %w", err)
	}
	token = bytes.TrimSpace(data)
	if err := CheckToken(token); err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	return token, created, nil
}

// makeCertificate makes a key and a self-signed certificate for it, and returns both as PEM. Hosts that join trust
// the certificate by its pin (its SHA-256), which the user copies to them.
func makeCertificate(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	// Hosts know the certificate by its pin, so name and dates do not matter.
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "inferplan"}, DNSNames: []string{"inferplan"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(30, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	var certificatePEM bytes.Buffer
	for _, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := pem.Encode(&certificatePEM, b); err != nil {
			return nil, err
		}
	}
	return certificatePEM.Bytes(), nil
}

// writeSecret writes a new file for its owner only. The file appears complete or not at all.
func writeSecret(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".certificate-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path) // fails if another process has made the file meanwhile
}

// pinOf returns the pin of a certificate in DER form: "sha256:" and its hash.
func pinOf(der []byte) string {
	sum := sha256.Sum256(der)
	return pinPrefix + hex.EncodeToString(sum[:])
}

// PinnedTLS returns a configuration that trusts only the certificate with a pin, and no authority. A pin is
// "sha256:" and the hash of the certificate in hexadecimal digits, with or without colons between them.
func PinnedTLS(pin string) (*tls.Config, error) {
	digits, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(pin)), pinPrefix)
	sum, err := hex.DecodeString(strings.ReplaceAll(digits, ":", ""))
	if !ok || err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("pin %q: expected sha256: and %d hexadecimal digits, as plan serve prints it", pin, 2*sha256.Size)
	}
	wantedPin := pinPrefix + hex.EncodeToString(sum)
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Instead of names and authorities, VerifyConnection compares the certificate with its hash. TLS itself
		// has the server prove that it owns the key.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return fmt.Errorf("%w: it has none", ErrCertificate)
			}
			if actualPin := pinOf(s.PeerCertificates[0].Raw); actualPin != wantedPin {
				return fmt.Errorf("%w: its pin is %s, expected %s", ErrCertificate, actualPin, wantedPin)
			}
			return nil
		},
	}, nil
}

// untrustedError marks an error of a dial with ErrCertificate if trying again cannot help: the server is not
// trusted, or does not speak TLS.
func untrustedError(err error) error {
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &verify):
		return fmt.Errorf("%w: %w", ErrCertificate, err)
	case errors.As(err, &record):
		return fmt.Errorf("%w: it does not speak TLS at this address: %w", ErrCertificate, err)
	}
	return err
}
