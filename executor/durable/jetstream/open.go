package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"inferplan/executor/durable"
)

// Options configure a store. Each field's comment says what its zero value stands for.
type Options struct {
	// Name is the name of the stream and the bucket. Processes with the same name share the store. The default is
	// "inferplan".
	Name string
	// Replicas is the number of nodes that store everything. It is used when the stream is created. The default is 3.
	Replicas int
	// AckWait is the time without a heartbeat after which the holder of a record counts as gone. The default is 30 s.
	AckWait time.Duration
	Sealer  *durable.Sealer // if nil, data is stored unencrypted
	Connect []nats.Option   // credentials, TLS
	Log     *slog.Logger    // slog.Default if nil
}

// Store is a durable.Store in a cluster. It is also a durable.Shared.
type Store struct {
	clusterClient
	heartbeats sync.WaitGroup

	mu     sync.Mutex
	claims map[string]*claim
}

// clusterClient is the connection to the cluster, with its stream, consumer and bucket.
type clusterClient struct {
	opt          Options
	conn         *nats.Conn
	js           jetstream.JetStream
	leader       nats.JetStreamContext // reads from the stream's leader, which has every message
	stream       jetstream.Stream
	consumer     jetstream.Consumer
	bucket       jetstream.KeyValue
	pageSize     int             // messages that are read at once
	refusalLog   rate.Sometimes  // limits the log lines about foreign messages
	refusedCount atomic.Uint64   // number of foreign messages
	ctx          context.Context // ends at Close
	stop         context.CancelFunc
}

// openTimeout bounds the wait for a cluster to answer.
const openTimeout = 30 * time.Second

// Open connects to the NATS servers of a URL such as nats://a:4222,nats://b:4222, and creates what the store needs (a
// stream of records, a consumer that delivers them, a bucket of values) if it does not exist. It returns an error if
// this does not succeed within openTimeout. It starts the heartbeats by which the server knows that claimed records are
// still served.
func Open(ctx context.Context, url string, opt Options) (*Store, error) {
	opt.Name = cmp.Or(opt.Name, "inferplan")
	opt.Replicas = cmp.Or(opt.Replicas, 3)
	opt.AckWait = cmp.Or(opt.AckWait, 30*time.Second)
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if err := (&durable.Record{ID: opt.Name}).Check(); err != nil {
		return nil, fmt.Errorf("name of the stream: %w", err)
	}
	conn, err := nats.Connect(url, append([]nats.Option{nats.Name("inferplan"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond)}, opt.Connect...)...)
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", url, err)
	}
	s := &Store{clusterClient: clusterClient{opt: opt, conn: conn, pageSize: 1000, refusalLog: rate.Sometimes{First: 3, Interval: 10 * time.Second}}, claims: map[string]*claim{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := s.open(ctx); err != nil {
		s.stop()
		conn.Close()
		return nil, fmt.Errorf("queue %s: %w", url, err)
	}
	s.heartbeats.Go(s.sendHeartbeats)
	return s, nil
}

// open connects to JetStream, the store of NATS, and creates the stream, the consumer and the bucket if they do not
// exist. It tries again until ctx ends, because a cluster that has just started has no leader yet. A wrong key is an
// error at once.
func (s *clusterClient) open(ctx context.Context) (err error) {
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	if s.leader, err = s.conn.JetStream(); err != nil {
		return err
	}
	for {
		if err = s.createResources(ctx); err == nil || ctx.Err() != nil || errors.Is(err, durable.ErrWrongKey) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// createResources creates what the store needs in the cluster: a stream of records, a consumer that claims them,
// and a bucket of values. Those that exist are adapted to the options.
func (s *clusterClient) createResources(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name := s.opt.Name
	s.stream, err = s.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".req.*", name + ".state.*", name + ".due.*"},
		Storage: jetstream.FileStorage, Replicas: s.opt.Replicas, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute,
		AllowDirect: true, RePublish: &jetstream.RePublish{Source: s.subject("state", "*"), Destination: s.newsSubject("{{wildcard(1)}}")},
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	s.consumer, err = s.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "serve", FilterSubject: name + ".req.*", DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: s.opt.AckWait, MaxDeliver: -1, MaxAckPending: -1,
	})
	if err != nil {
		return fmt.Errorf("consumer of %s: %w", name, err)
	}
	s.bucket, err = s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, Storage: jetstream.FileStorage, Replicas: s.opt.Replicas, History: 1})
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	return s.checkKey(ctx)
}

// checkKey returns durable.ErrWrongKey if the store's values are sealed (encrypted) with another key than that of the
// options. It sees this by a known text that the first process stores, sealed; in a new store that is this process.
func (s *clusterClient) checkKey(ctx context.Context) error {
	const key = "check"
	sealed, err := s.opt.Sealer.Seal(key, []byte("inferplan 1"))
	if err != nil {
		return err
	}
	if _, err = s.bucket.Create(ctx, key, sealed); err == nil || !errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	entry, err := s.bucket.Get(ctx, key)
	if err != nil {
		return err
	}
	opened, err := s.opt.Sealer.Open(key, entry.Value())
	if err == nil && string(opened) != "inferplan 1" {
		err = fmt.Errorf("%s: %w", key, durable.ErrWrongKey)
	}
	return err
}

// Close implements durable.Store: it gives back what this process holds, in the order of acceptance, and closes the
// connection.
func (s *Store) Close() error {
	s.stop()
	s.heartbeats.Wait()
	s.mu.Lock()
	claims := make([]*claim, 0, len(s.claims))
	for _, h := range s.claims {
		claims = append(claims, h)
	}
	s.claims = map[string]*claim{}
	s.mu.Unlock()
	slices.SortFunc(claims, func(a, b *claim) int { return int(a.seq) - int(b.seq) })
	var err error
	for _, h := range claims {
		err = errors.Join(err, s.signal(h, signalReleased))
	}
	if !s.conn.IsClosed() {
		err = errors.Join(err, s.conn.FlushTimeout(5*time.Second))
	}
	s.conn.Close()
	return err
}

// retryTimeout bounds the time for which a call is repeated while the cluster has no leader.
const retryTimeout = 30 * time.Second

// retry repeats a call to the cluster until it succeeds, with pauses that grow from 20 ms to 1 s. It gives up with the
// call's error if that is permanent, after retryTimeout, or when ctx ends; with durable.ErrClosed when the store closes.
// Each attempt has three seconds.
func (s *clusterClient) retry(ctx context.Context, call func(ctx context.Context) error) error {
	if s.ctx.Err() != nil {
		return durable.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		callCtx, cancelCall := context.WithTimeout(ctx, 3*time.Second)
		err := call(callCtx)
		cancelCall()
		if err == nil || isPermanent(err) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if s.ctx.Err() != nil {
				return durable.ErrClosed
			}
			return errors.Join(err, ctx.Err())
		}
	}
}

// isPermanent returns whether a call to the cluster would fail again with the same error, so that retry gives up.
func isPermanent(err error) bool {
	if isConflict(err) || isMissing(err) || errors.Is(err, jetstream.ErrInvalidKey) {
		return true
	}
	for _, e := range []error{nats.ErrMaxPayload, jetstream.ErrStreamMessageExceedsMaximum, durable.ErrWrongKey, durable.ErrFinished, durable.ErrConflict, durable.ErrNotFound} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// isConflict reports whether another message came under the subject first.
func isConflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// isMissing reports whether a message or key does not exist.
func isMissing(err error) bool {
	return errors.Is(err, nats.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyDeleted) || errors.Is(err, jetstream.ErrNoKeysFound)
}
