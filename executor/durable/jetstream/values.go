package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"inferplan/executor/durable"
)

// bucketKey returns the key of a value in the bucket. Its prefix keeps it apart from the store's own keys.
func bucketKey(key string) string { return "v." + strings.ReplaceAll(key, "/", ".") }

// Put implements durable.Values: it stores a value under a key, in place of an earlier one.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	if err := durable.CheckValue(key, value); err != nil {
		return err
	}
	sealed, err := s.opt.Sealer.Seal("value/"+key, value)
	if err != nil {
		return err
	}
	return s.retry(ctx, func(ctx context.Context) error {
		_, err := s.bucket.Put(ctx, bucketKey(key), sealed)
		return err
	})
}

// Value implements durable.Values: it returns the value under a key, or durable.ErrNotFound.
func (s *Store) Value(ctx context.Context, key string) (value []byte, err error) {
	if durable.CheckKey(key) != nil {
		return nil, fmt.Errorf("%.80q: %w", key, durable.ErrNotFound)
	}
	var entry jetstream.KeyValueEntry
	err = s.retry(ctx, func(ctx context.Context) (err error) {
		entry, err = s.bucket.Get(ctx, bucketKey(key))
		return err
	})
	if isMissing(err) {
		return nil, fmt.Errorf("%s: %w", key, durable.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return s.opt.Sealer.Open("value/"+key, entry.Value())
}

// Keys implements durable.Values: it returns the keys that begin with prefix, in order.
func (s *Store) Keys(ctx context.Context, prefix string) (keys []string, err error) {
	// The server filters only by whole parts of a key.
	filter := bucketKey("")
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		filter = bucketKey(prefix[:i+1])
	}
	err = s.retry(ctx, func(ctx context.Context) error {
		list, err := s.bucket.ListKeysFiltered(ctx, filter+">")
		if err != nil {
			return err
		}
		keys = keys[:0]
		for key := range list.Keys() {
			key = strings.ReplaceAll(strings.TrimPrefix(key, "v."), ".", "/")
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		return ctx.Err() // otherwise the list is complete
	})
	if isMissing(err) {
		return nil, nil
	}
	slices.Sort(keys)
	return keys, err
}

// Delete implements durable.Values: it removes a value. A value that does not exist is no error.
func (s *Store) Delete(ctx context.Context, key string) error {
	if durable.CheckKey(key) != nil {
		return nil
	}
	err := s.retry(ctx, func(ctx context.Context) error { return s.bucket.Purge(ctx, bucketKey(key)) })
	if isMissing(err) {
		return nil
	}
	return err
}

// listingTimeout is the wait after which a listing of the ended records counts as complete.
const listingTimeout = 500 * time.Millisecond

// Expire implements durable.Store: it deletes the ended records that are older, at the time now, than the retention of
// their class, and returns how many it has deleted.
func (s *Store) Expire(ctx context.Context, now time.Time, retention func(class string) time.Duration) (int, error) {
	if s.ctx.Err() != nil {
		return 0, durable.ErrClosed
	}
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.subject("due", "*")))
	if err != nil {
		return 0, fmt.Errorf("ended requests: %w", err)
	}
	remaining := len(info.State.Subjects)
	if remaining == 0 {
		return 0, nil
	}
	dueRecords, err := s.js.OrderedConsumer(ctx, s.opt.Name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{s.subject("due", "*")}, HeadersOnly: true})
	if err != nil {
		return 0, fmt.Errorf("ended requests: %w", err)
	}
	n := 0

	// Read the list of ended records in batches.
	for remaining > 0 {
		batch, err := dueRecords.Fetch(min(remaining, 500), jetstream.FetchMaxWait(listingTimeout))
		if err != nil {
			return n, fmt.Errorf("ended requests: %w", err)
		}
		received := 0
		for m := range batch.Messages() {
			received++
			deleted, err := s.expireRecord(ctx, m, now, retention)
			if err != nil {
				return n, err
			}
			n += deleted
		}
		if remaining -= received; received == 0 {
			break
		}
	}
	return n, nil
}

// expireRecord deletes an ended record if its retention is over, and returns how many that were, 0 or 1. m is the
// message that lists it, which is deleted last, so that an interrupted deletion is repeated.
func (s *Store) expireRecord(ctx context.Context, m jetstream.Msg, now time.Time, retention func(class string) time.Duration) (int, error) {
	class, err := strconv.Unquote(m.Headers().Get(headerClass))
	nanos, timeErr := strconv.ParseInt(m.Headers().Get(headerEnded), 10, 64)
	if err = errors.Join(err, timeErr); err != nil {
		s.countRefused("the time of an end", fmt.Errorf("%s: %w: %w", m.Subject(), errWrongForm, err))
		return 0, nil
	}
	if now.Sub(time.Unix(0, nanos)) < retention(class) {
		return 0, nil
	}
	id := m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]
	for _, kind := range []string{"state", "req", "due"} {
		err := s.retry(ctx, func(ctx context.Context) error {
			return s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject(kind, id)))
		})
		if err != nil {
			return 0, err
		}
	}
	return 1, nil
}
