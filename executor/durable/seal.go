package durable

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// Sealer encrypts what is stored with AES-256-GCM. A nil *Sealer stores it unencrypted.
//
// Every value is encrypted with a key of its own. It is derived (HKDF, RFC 5869) from the store's key and 16 random
// bytes in front of the value. So the number of values under one store key is not bounded by the chance that a nonce
// repeats.
type Sealer struct{ key []byte }

const (
	keyBytes  = 32
	saltBytes = 16
)

// NewSealer returns a sealer, which encrypts what a store holds, with the key in the content of a key file: 32
// bytes as hexadecimal digits or base64.
func NewSealer(file []byte) (*Sealer, error) {
	text := string(bytes.TrimSpace(file))
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString} {
		if key, err := decode(text); err == nil && len(key) == keyBytes {
			return &Sealer{key}, nil
		}
	}
	return nil, fmt.Errorf("store key: expected %d bytes as hexadecimal digits or base64, such as openssl rand -hex %d writes", keyBytes, keyBytes)
}

// Seal encrypts data for a location, the key under which a store keeps it. Open needs the same location, so data
// that was moved to another one is refused. Without a sealer, s is nil, and data stays as it is.
func (s *Sealer) Seal(location string, data []byte) ([]byte, error) {
	if s == nil {
		return data, nil
	}
	sealed := make([]byte, saltBytes, saltBytes+len(data)+64)
	if _, err := rand.Read(sealed); err != nil {
		return nil, fmt.Errorf("random bytes: %w", err)
	}
	gcm, err := s.cipher(sealed)
	if err != nil {
		return nil, err
	}
	return gcm.Seal(sealed, nil, data, []byte(location)), nil
}

// Open returns the data that Seal has encrypted for a location (the name under which a store has the value, so that
// values cannot be exchanged). It returns ErrWrongKey if key or location differ or the bytes were changed. A nil Sealer
// encrypts nothing, and its Open returns the bytes as they are.
func (s *Sealer) Open(location string, sealed []byte) ([]byte, error) {
	if s == nil {
		return sealed, nil
	}
	if len(sealed) < saltBytes {
		return nil, fmt.Errorf("%s: %w", location, ErrWrongKey)
	}
	gcm, err := s.cipher(sealed[:saltBytes])
	if err != nil {
		return nil, err
	}
	data, err := gcm.Open([]byte{}, nil, sealed[saltBytes:], []byte(location))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", location, ErrWrongKey)
	}
	return data, nil
}

// cipher returns the cipher for one value. Its key is derived from the store's key and the value's salt, random
// bytes that are stored in front of the value.
func (s *Sealer) cipher(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.key, salt, "inferplan store", keyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}
