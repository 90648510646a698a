package slim

import (
	"strings"
	"sync"
)

// Shared holds values once that many objects have, by what tells them apart. It
// never holds more than Most: when it is full it begins anew, and what was shared
// before stays as it is. The standard library's unique does not do here: it forgets
// a value of which nobody keeps the handle, and there is no place for one in
// objects of Kubernetes.
type Shared[K comparable, V any] struct {
	Most int

	mu    sync.Mutex
	known map[K]*V
}

// Of is the value that is told by a key; where none is held yet, what is to be held
// from now on. It is only to be read.
func (s *Shared[K, V]) Of(key K, held func() (K, V)) *V {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, is := s.known[key]; is {
		return v
	}
	if s.known == nil || len(s.known) >= s.Most {
		s.known = map[K]*V{}
	}
	key, v := held()
	s.known[key] = &v
	return &v
}

// texts are those of all informers. With 5,000 claims and 20,000 snapshots there
// are some 6,000, most of them UIDs of claims.
var texts = Shared[string, string]{Most: 1 << 14}

// longest is the length of texts that may be alike in many objects. What is longer
// is somebody's message, or a document.
const longest = 64

// Text is a text that other objects have, too.
func Text[T ~string](text T) T {
	if text == "" || len(text) > longest {
		return text
	}
	return T(*shared(string(text)))
}

// Pointer is the same for a field that may be absent.
func Pointer(text *string) *string {
	if text == nil || len(*text) > longest {
		return text
	}
	return shared(*text)
}

func shared(text string) *string {
	return texts.Of(text, func() (string, string) {
		text = strings.Clone(text) // it may be a part of a longer one
		return text, text
	})
}

// Texts are those of a list, in place.
func Texts[T ~string](all []T) {
	for i := range all {
		all[i] = Text(all[i])
	}
}

// Map is a map of such keys and values; nil where there are none.
func Map(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	slim := make(map[string]string, len(m))
	for k, v := range m {
		slim[Text(k)] = Text(v)
	}
	return slim
}
