package bolt

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// Put implements durable.Values: it stores a value under a key, in place of an earlier one.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	if err := durable.CheckValue(key, value); err != nil {
		return err
	}
	sealed, err := s.file.seal("value/"+key, value)
	if err != nil {
		return err
	}
	return s.commits.update(ctx, func(tx *bbolt.Tx) error { return tx.Bucket(valuesBucket).Put([]byte(key), sealed) }, nil)
}

// Value implements durable.Values: it returns the value under a key, or durable.ErrNotFound.
func (s *Store) Value(_ context.Context, key string) (value []byte, err error) {
	err = s.file.view(func(tx *bbolt.Tx) (err error) {
		sealed := tx.Bucket(valuesBucket).Get([]byte(key))
		if sealed == nil {
			return fmt.Errorf("%s: %w", key, durable.ErrNotFound)
		}
		value, err = s.file.unseal("value/"+key, sealed)
		return err
	})
	return value, err
}

// Keys implements durable.Values: it returns the keys that begin with prefix, in order.
func (s *Store) Keys(_ context.Context, prefix string) (keys []string, err error) {
	err = s.file.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(valuesBucket).Cursor()
		for k, _ := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, _ = c.Next() {
			keys = append(keys, string(k))
		}
		return nil
	})
	return keys, err
}

// Delete implements durable.Values.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.commits.update(ctx, func(tx *bbolt.Tx) error { return tx.Bucket(valuesBucket).Delete([]byte(key)) }, nil)
}
