package bolt

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// Put implements durable.Values.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	if err := durable.CheckKey(key); err != nil {
		return err
	}
	if len(value) > durable.MaxValue {
		return fmt.Errorf("%s: %d bytes, at most %d: %w", key, len(value), durable.MaxValue, durable.ErrTooLarge)
	}
	sealed, err := s.seal("value/"+key, value)
	if err != nil {
		return err
	}
	return s.commits.update(ctx, func(tx *bbolt.Tx) error { return tx.Bucket(values).Put([]byte(key), sealed) }, nil)
}

// Value implements durable.Values.
func (s *Store) Value(_ context.Context, key string) (value []byte, err error) {
	err = s.view(func(tx *bbolt.Tx) (err error) {
		sealed := tx.Bucket(values).Get([]byte(key))
		if sealed == nil {
			return fmt.Errorf("%s: %w", key, durable.ErrNotFound)
		}
		value, err = s.unseal("value/"+key, sealed)
		return err
	})
	return value, err
}

// Keys implements durable.Values.
func (s *Store) Keys(_ context.Context, prefix string) (out []string, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(values).Cursor()
		for k, _ := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, _ = c.Next() {
			out = append(out, string(k))
		}
		return nil
	})
	return out, err
}

// Delete implements durable.Values.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.commits.update(ctx, func(tx *bbolt.Tx) error { return tx.Bucket(values).Delete([]byte(key)) }, nil)
}
