package completions

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
)

// headerSession is the header that names the session of a request. Requests of a session repeat the tokens of the one before, as the turns
// of a conversation do.
const headerSession = "X-Session-Id"

// setSession sets what tells the request's session apart, from its body: the member prompt_cache_key, else the beginning of a chat. All turns
// of a chat begin with the same messages, up to the first of the user. A prompt that is a text has no such part. The member user names no
// session, because a user has several conversations.
func (parsed *parsedRequest) setSession() {
	if parsed.session = parsed.chatStart; parsed.cacheKey != "" {
		parsed.session = hashName(parsed.cacheKey)
	}
}

// readSessionHeader takes the session from the header, unless the body names it.
func (parsed *parsedRequest) readSessionHeader(req *apiRequest) {
	if name := req.r.Header.Get(headerSession); name != "" && parsed.cacheKey == "" {
		parsed.session = hashName(name)
	}
}

// hashName returns a hash of a name, which is not 0.
func hashName(name string) uint64 {
	h := fnv.New64a()
	hashText(h, name)
	return max(h.Sum64(), 1)
}

// sessionOf returns the number of the session of a record, as the policy has it: a hash of the owner, the model and what names the session. If
// the request has no session, it is 0. It is the same in every process and after a restart.
func (r *requestRecord) sessionOf(session uint64) int64 {
	if session == 0 {
		return 0
	}
	h := fnv.New64a()
	hashText(h, r.Owner)
	hashText(h, r.Model)
	_ = binary.Write(h, binary.LittleEndian, session) // a hash takes all
	return int64(max(h.Sum64()>>1, 1))
}

// hashText adds a text and its length to a hash, so that two texts differ from one with the same letters.
func hashText(h hash.Hash64, text string) {
	_ = binary.Write(h, binary.LittleEndian, int64(len(text))) // a hash takes all
	_, _ = h.Write([]byte(text))
}
