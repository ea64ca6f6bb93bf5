package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// decodeNumber returns the number that encodeNumber has written.
func sequence(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

// Accept implements durable.Store.
func (s *Store) Accept(ctx context.Context, r *durable.Record) (fresh bool, err error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	h := header{class: r.Class}
	if h.data, err = s.seal("record/"+r.ID, r.Data); err != nil {
		return false, err
	}
	err = s.commits.update(ctx, func(tx *bbolt.Tx) (err error) {
		if fresh = tx.Bucket(records).Get([]byte(r.ID)) == nil; !fresh {
			return nil
		}
		if h.seq, err = tx.Bucket(open).NextSequence(); err != nil {
			return err
		}
		return errors.Join(tx.Bucket(records).Put([]byte(r.ID), h.encode()), tx.Bucket(open).Put(number(h.seq), []byte(r.ID)))
	}, func() {
		if fresh {
			s.claims.add(h.seq, r.ID)
		}
	})
	return fresh && err == nil, err
}

// Append implements durable.Store.
func (s *Store) Append(ctx context.Context, id string, at int, text []byte, tokens int) error {
	sealed, err := s.seal(textPlace(id, at), text)
	if err != nil {
		return err
	}
	p := piece{size: len(text), tokens: tokens, data: sealed}
	return s.commits.update(ctx, func(tx *bbolt.Tx) error {
		if err := unfinished(tx, id); err != nil {
			return err
		}
		size, err := textSize(tx, id)
		if err != nil {
			return err
		}
		if size != at {
			return fmt.Errorf("%s: text of %d bytes is stored, not %d: %w", id, size, at, durable.ErrMoved)
		}
		return tx.Bucket(texts).Put(textKey(id, at), p.encode())
	}, nil)
}

// textLocation returns the location of a piece of text, for the sealer.
func textPlace(id string, at int) string { return "text/" + id + "/" + strconv.Itoa(at) }

// checkOpen returns an error if a record does not exist or has ended.
func unfinished(tx *bbolt.Tx, id string) error {
	if tx.Bucket(ends).Get([]byte(id)) != nil {
		return fmt.Errorf("%s: %w", id, durable.ErrFinished)
	}
	if tx.Bucket(records).Get([]byte(id)) == nil {
		return fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	return nil
}

// textSize returns the number of bytes of text that are stored.
func textSize(tx *bbolt.Tx, id string) (int, error) {
	prefix := textPrefix(id)
	c := tx.Bucket(texts).Cursor()

	// The last piece is in front of the first key of a later record.
	k, v := c.Last()
	if next, _ := c.Seek(append([]byte(id), 1)); next != nil {
		k, v = c.Prev()
	}
	if !bytes.HasPrefix(k, prefix) {
		return 0, nil
	}
	p, err := readPiece(k, v)
	return p.at + p.size, err
}

// Finish implements durable.Store.
func (s *Store) Finish(ctx context.Context, id string, end []byte) error {
	sealed, err := s.seal("end/"+id, end)
	if err != nil {
		return err
	}
	return s.commits.update(ctx, func(tx *bbolt.Tx) error {
		if err := unfinished(tx, id); err != nil {
			return err
		}
		h, err := findHeader(tx, id)
		if err != nil {
			return err
		}
		now := s.opt.Now()
		return errors.Join(tx.Bucket(ends).Put([]byte(id), append(number(uint64(now.UnixNano())), sealed...)),
			tx.Bucket(due).Put(dueKey(h.class, now, id), []byte{}), tx.Bucket(open).Delete(number(h.seq)))
	}, func() { s.claims.end(id) })
}

// Get implements durable.Store.
func (s *Store) Get(_ context.Context, id string) (*durable.State, error) {
	var out *durable.State
	err := s.view(func(tx *bbolt.Tx) (err error) {
		out, err = s.state(tx, id)
		return err
	})
	return out, err
}

// readState reads a record, its text and its result.
func (s *Store) state(tx *bbolt.Tx, id string) (*durable.State, error) {
	h, err := findHeader(tx, id)
	if err != nil {
		return nil, err
	}
	out := &durable.State{Record: durable.Record{ID: id, Class: h.class}}
	if out.Data, err = s.unseal("record/"+id, h.data); err != nil {
		return nil, err
	}

	// The text, piece by piece.
	prefix := textPrefix(id)
	c := tx.Bucket(texts).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		p, err := readPiece(k, v)
		if err != nil {
			return nil, err
		}
		text, err := s.unseal(textPlace(id, p.at), p.data)
		if err != nil {
			return nil, err
		}
		if p.at != len(out.Text) || p.size != len(text) {
			return nil, fmt.Errorf("text of %s: %w", id, errCorrupt)
		}
		out.Text = append(out.Text, text...)
		out.Tokens += p.tokens
	}

	// The result.
	v := tx.Bucket(ends).Get([]byte(id))
	if v == nil {
		return out, nil
	}
	if len(v) < 8 {
		return nil, fmt.Errorf("end of %s: %w", id, errCorrupt)
	}
	out.Ended = time.Unix(0, int64(sequence(v)))
	out.End, err = s.unseal("end/"+id, v[8:])
	return out, err
}
