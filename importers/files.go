package importers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"inferplan/formats/usage"
)

// FilesOf returns the files that arguments name: a file, all files in a folder and below it whose names have one of the
// endings (or also .gz behind it), or those that a pattern such as runs/*.json matches. Each file is returned once.
func FilesOf(args []string, endings ...string) ([]string, error) {
	var files []string
	for _, arg := range args {
		matches := []string{arg}
		if _, err := os.Stat(arg); errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(arg, "*?[") {
			if matches, err = filepath.Glob(arg); err != nil {
				return nil, usage.Errorf("%s: %w", arg, err)
			}
			if len(matches) == 0 {
				return nil, usage.Errorf("%s: found no file of such a name", arg)
			}
		}
		for _, match := range matches {
			found, err := filesBelow(match, endings)
			if err != nil {
				return nil, usage.Mark(err)
			}
			if len(found) == 0 {
				return nil, usage.Errorf("%s: found no file that ends in %s", match, strings.Join(endings, " or "))
			}
			for _, name := range found {
				if !slices.Contains(files, name) {
					files = append(files, name)
				}
			}
		}
	}
	return files, nil
}

// filesBelow returns the file at path or, if it is a folder, the files in it and below it that have one of the endings.
func filesBelow(path string, endings []string) ([]string, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []string{path}, nil // a file that is absent is said by who opens it
	}
	var files []string
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(strings.TrimSuffix(name, ".gz"), end) }) {
			files = append(files, name)
		}
		return err
	})
	return files, err
}

// NamePattern says pattern of the names of files, such as {model}_{device}_b{batch}*.json: a text in braces is a field,
// and * is any text. A pattern with slashes is about the folders above a file, too.
type NamePattern struct {
	text   string
	regexp *regexp.Regexp
}

// nameFields are the fields that a pattern may have, with what their values look like.
var nameFields = map[string]string{"model": `[^/]+?`, "device": `[^/_]+?`, "batch": `[0-9]+`, "share": `[0-9]+`, "concurrency": `[0-9]+`}

// patternPart matches a field or a star of a pattern.
var patternPart = regexp.MustCompile(`\{([^}]*)\}|\*`)

// ParseNames reads a pattern of names. flag is its flag, for errors.
func ParseNames(flag, text string) (*NamePattern, error) {
	var b strings.Builder
	b.WriteString(`(?:^|/)`)
	last, seen := 0, map[string]bool{}
	for _, m := range patternPart.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(regexp.QuoteMeta(text[last:m[0]]))
		last = m[1]
		if m[2] < 0 {
			b.WriteString(`[^/]*?`)
			continue
		}
		name := text[m[2]:m[3]]
		value, isKnown := nameFields[name]
		if !isKnown || seen[name] {
			return nil, usage.Errorf("--%s %s: found {%s}, expected {model}, {device}, {batch}, {share} or {concurrency}, each once", flag, text, name)
		}
		seen[name] = true
		b.WriteString("(?P<" + name + ">" + value + ")")
	}
	b.WriteString(regexp.QuoteMeta(text[last:]) + `(?:\.gz)?$`)
	p, err := regexp.Compile(b.String())
	if err != nil {
		return nil, usage.Errorf("--%s %s: %w", flag, text, err)
	}
	return &NamePattern{text, p}, nil
}

// Fields returns the fields that the name of a file tells.
func (p *NamePattern) Fields(path string) (map[string]string, error) {
	match := p.regexp.FindStringSubmatch(filepath.ToSlash(path))
	if match == nil {
		return nil, usage.Errorf("%s: found a name that is not like %s\n  hint: --names says what the names tell, such as '{device}/{model}/b{batch}*.json'", path, p.text)
	}
	fields := map[string]string{}
	for i, name := range p.regexp.SubexpNames() {
		if name != "" {
			fields[name] = match[i]
		}
	}
	return fields, nil
}
