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
func decodeNumber(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

// Accept implements durable.Store: it stores a new record, sealed, with the next number in the order of acceptance, and
// makes it available to be claimed. If a record with this id exists, isNew is false, and that one stays as it is.
func (s *Store) Accept(ctx context.Context, r *durable.Record) (isNew bool, err error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	h := recordHeader{class: r.Class}
	if h.data, err = s.file.seal("record/"+r.ID, r.Data); err != nil {
		return false, err
	}
	// Once the record is committed, it can be claimed.
	err = s.commits.update(ctx, func(tx *bbolt.Tx) (err error) {
		if isNew = tx.Bucket(recordsBucket).Get([]byte(r.ID)) == nil; !isNew {
			return nil
		}
		if h.seq, err = tx.Bucket(openBucket).NextSequence(); err != nil {
			return err
		}
		return errors.Join(tx.Bucket(recordsBucket).Put([]byte(r.ID), h.encode()), tx.Bucket(openBucket).Put(encodeNumber(h.seq), []byte(r.ID)))
	}, func() {
		if isNew {
			s.claims.add(h.seq, r.ID)
		}
	})
	return isNew && err == nil, err
}

// Append implements durable.Store: it stores a piece of the text (the answer so far) of an open record, and the tokens
// in it. offset is where the piece begins, in bytes. If that is not the length of the stored text, it returns
// durable.ErrConflict.
func (s *Store) Append(ctx context.Context, id string, offset int, text []byte, tokens int) error {
	sealed, err := s.file.seal(textLocation(id, offset), text)
	if err != nil {
		return err
	}
	p := textPiece{size: len(text), tokens: tokens, data: sealed}
	return s.commits.update(ctx, func(tx *bbolt.Tx) error {
		if err := checkOpen(tx, id); err != nil {
			return err
		}
		size, err := textSize(tx, id)
		if err != nil {
			return err
		}
		if size != offset {
			return fmt.Errorf("%s: text of %d bytes is stored, not %d: %w", id, size, offset, durable.ErrConflict)
		}
		return tx.Bucket(textsBucket).Put(textKey(id, offset), p.encode())
	}, nil)
}

// textLocation returns the location of a piece of text, for the sealer.
func textLocation(id string, offset int) string { return "text/" + id + "/" + strconv.Itoa(offset) }

// checkOpen returns an error unless a record exists and has no result yet.
func checkOpen(tx *bbolt.Tx, id string) error {
	if tx.Bucket(endsBucket).Get([]byte(id)) != nil {
		return fmt.Errorf("%s: %w", id, durable.ErrFinished)
	}
	if tx.Bucket(recordsBucket).Get([]byte(id)) == nil {
		return fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	return nil
}

// textSize returns how many bytes of a record's text are stored, which is where its last piece ends; 0 without text.
// Keys of pieces are the id, a zero byte and the offset.
func textSize(tx *bbolt.Tx, id string) (int, error) {
	prefix := textPrefix(id)
	c := tx.Bucket(textsBucket).Cursor()

	// The last piece is in front of the first key of a later record.
	k, v := c.Last()
	if next, _ := c.Seek(append([]byte(id), 1)); next != nil {
		k, v = c.Prev()
	}
	if !bytes.HasPrefix(k, prefix) {
		return 0, nil
	}
	p, err := readPiece(k, v)
	return p.offset + p.size, err
}

// Finish implements durable.Store: it stores the result `end` of an open record with the time, from which its retention
// counts, and lists the record as one to be deleted then. It can no longer be claimed.
func (s *Store) Finish(ctx context.Context, id string, end []byte) error {
	sealed, err := s.file.seal("end/"+id, end)
	if err != nil {
		return err
	}
	return s.commits.update(ctx, func(tx *bbolt.Tx) error {
		if err := checkOpen(tx, id); err != nil {
			return err
		}
		h, err := findHeader(tx, id)
		if err != nil {
			return err
		}
		now := s.file.opt.Now()
		return errors.Join(tx.Bucket(endsBucket).Put([]byte(id), append(encodeNumber(uint64(now.UnixNano())), sealed...)),
			tx.Bucket(dueBucket).Put(dueKey(h.class, now, id), []byte{}), tx.Bucket(openBucket).Delete(encodeNumber(h.seq)))
	}, func() { s.claims.removeEnded(id) })
}

// Get implements durable.Store: it returns the state of a record.
func (s *Store) Get(_ context.Context, id string) (*durable.State, error) {
	var state *durable.State
	err := s.file.view(func(tx *bbolt.Tx) (err error) {
		state, err = s.readState(tx, id)
		return err
	})
	return state, err
}

// readState returns the state of a record: its data, its text, joined from the pieces, and its result if it has
// ended. It decrypts all of them.
func (s *Store) readState(tx *bbolt.Tx, id string) (*durable.State, error) {
	h, err := findHeader(tx, id)
	if err != nil {
		return nil, err
	}
	state := &durable.State{Record: durable.Record{ID: id, Class: h.class}}
	if state.Data, err = s.file.unseal("record/"+id, h.data); err != nil {
		return nil, err
	}

	// The text, piece by piece.
	prefix := textPrefix(id)
	c := tx.Bucket(textsBucket).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		p, err := readPiece(k, v)
		if err != nil {
			return nil, err
		}
		text, err := s.file.unseal(textLocation(id, p.offset), p.data)
		if err != nil {
			return nil, err
		}
		if p.offset != len(state.Text) || p.size != len(text) {
			return nil, fmt.Errorf("text of %s: %w", id, errCorrupt)
		}
		state.Text = append(state.Text, text...)
		state.Tokens += p.tokens
	}

	// The result.
	v := tx.Bucket(endsBucket).Get([]byte(id))
	if v == nil {
		return state, nil
	}
	if len(v) < 8 {
		return nil, fmt.Errorf("end of %s: %w", id, errCorrupt)
	}
	state.EndedAt = time.Unix(0, int64(decodeNumber(v)))
	state.Result, err = s.file.unseal("end/"+id, v[8:])
	return state, err
}
