package requestlog

import "encoding/json"

// prefixCache is a cache of prompts without limit, by the hashes of their blocks. Each hash stands for a block and all
// before it.
type prefixCache struct{ blocks map[string]bool }

// mooncakeBlock is the number of tokens of a block in Mooncake's traces (FAST '25 release, README).
const mooncakeBlock = 512

// cachedTokens returns how many tokens of a prompt were sent before, and adds its blocks. Blocks hold Mooncake's 512
// tokens or, if the number of blocks does not fit that, equal parts of the prompt.
func (c *prefixCache) cachedTokens(hashes any, prompt int) (int, bool) {
	list, ok := hashes.([]any)
	if !ok || len(list) == 0 {
		return 0, false
	}
	if c.blocks == nil {
		c.blocks = map[string]bool{}
	}
	block := mooncakeBlock
	if n := len(list); prompt <= (n-1)*block || prompt > n*block {
		block = (prompt + n - 1) / n
	}
	known, isPrefix := 0, true
	for _, h := range list {
		var key string
		switch v := h.(type) {
		case json.Number:
			key = v.String()
		case string:
			key = v
		}
		if isPrefix = isPrefix && c.blocks[key]; isPrefix {
			known++
		}
		c.blocks[key] = true
	}
	return min(prompt, known*block), true
}
