package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

const (
	// In letters: a name that an attendee gives.
	longestName = 60
	// So many browsers have a place: the one that came first, for it is the attendee's, and the last ones after it. All
	// others came by the link of the sheet, as each look of the teacher does.
	mostBrowsers = 8
	// A claim is tried so often, where somebody else changes the claims meanwhile.
	tries = 5
)

var (
	errFull    = errors.New("all places are taken")
	errCode    = errors.New("no place has this code")
	errUnsaved = errors.New("the claim could not be kept")
)

type place struct {
	Name string `json:"name"`
	// As the teacher's list has it; empty for a place that anybody may claim.
	Attendee string `json:"attendee"`
	// The workspace's address, and its password: who knows it may claim the place from any browser.
	URL      string `json:"url"`
	Password string `json:"password"`
	target   *url.URL
}

type list struct {
	Title string `json:"title"`
	// Who has the room's link knows the one, and who has the teacher's the other.
	Key        string `json:"key"`
	TeacherKey string `json:"teacher_key"`
	// The door's own address, as attendees reach it.
	URL string `json:"url"`
	// Where attendees clone Rayside at home; empty where the teacher has told none.
	Home   string   `json:"home"`
	Places []*place `json:"places"`
}

type claim struct {
	Attendee string    `json:"attendee"`
	Since    time.Time `json:"since"`
	// The SHA-256 of each browser's cookie, the newest last.
	Browsers []string `json:"browsers"`
}

// Is what is true at one moment; nothing in it changes.
type state struct {
	list
	places    map[string]*place
	claims    map[string]claim
	byBrowser map[string]string
	version   string
}

// Returns the place of the browser with this cookie; nil for one that has none.
func (s *state) placeOf(cookie string) *place {
	return s.places[s.byBrowser[hashed(cookie)]]
}

type room struct {
	// The teacher's command writes into this Secret, and this program into the other.
	listed, kept *store
	current      atomic.Pointer[state]
	// It is closed when the state is another one.
	changed atomic.Pointer[chan struct{}]
	// One claim at a time.
	claiming sync.Mutex
}

func (r *room) now() *state { return r.current.Load() }

func (r *room) become(made *state) {
	next := make(chan struct{})
	r.current.Store(made)
	if earlier := r.changed.Swap(&next); earlier != nil {
		close(*earlier)
	}
}

// Calls `leave` once the browser has another place, or none, unless `ctx` ends before.
func (r *room) watch(ctx context.Context, cookie string, its *place, leave func()) {
	for {
		changed := *r.changed.Load()
		if now := r.now().placeOf(cookie); now == nil || now.Name != its.Name {
			leave()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (r *room) keepFresh(ctx context.Context) {
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		r.claiming.Lock()
		err := r.refresh(ctx)
		r.claiming.Unlock()
		if err != nil && !failing {
			log.Printf("what is known stays as it was: %v", err)
		}
		failing = err != nil
	}
}

// Reads the list and the claims anew.
func (r *room) refresh(ctx context.Context) error {
	there, err := r.listed.read(ctx)
	if err != nil {
		return fmt.Errorf("the list of places can't be read: %w", err)
	}
	read, err := listOf(there.data[listKey])
	if err != nil {
		return err
	}
	return r.reread(ctx, read)
}

func (r *room) reread(ctx context.Context, read list) error {
	there, err := r.kept.read(ctx)
	if err != nil {
		return fmt.Errorf("the claims can't be read: %w", err)
	}
	claims := map[string]claim{}
	if content := there.data[claimsKey]; len(content) > 0 {
		if err := json.Unmarshal(content, &claims); err != nil {
			return fmt.Errorf("the claims are not what was written: %w", err)
		}
	}
	r.become(stateOf(read, claims, there.version))
	return nil
}

func listOf(content []byte) (list, error) {
	var read list
	if err := json.Unmarshal(content, &read); err != nil {
		return list{}, fmt.Errorf("the list of places is none: %w", err)
	}
	if read.Key == "" {
		return list{}, errors.New("the list of places has no key of the room")
	}
	for _, each := range read.Places {
		target, err := url.Parse(each.URL)
		if err != nil || target.Host == "" || each.Name == "" || each.Password == "" {
			return list{}, fmt.Errorf("the place %q of the list is none", each.Name)
		}
		each.target = target
	}
	return read, nil
}

func stateOf(read list, claims map[string]claim, version string) *state {
	made := &state{read, map[string]*place{}, claims, map[string]string{}, version}
	for _, each := range read.Places {
		made.places[each.Name] = each
	}
	for name, each := range claims {
		for _, browser := range each.Browsers {
			made.byBrowser[browser] = name
		}
	}
	return made
}

// Gives a browser a place: the one with that code, else the next that nobody has. It is safe to ask again.
func (r *room) claim(ctx context.Context, cookie, name, code string) (*place, error) {
	r.claiming.Lock()
	defer r.claiming.Unlock()
	for range tries {
		now := r.now()
		if had := now.placeOf(cookie); had != nil && code == "" {
			return had, nil
		}
		chosen, err := now.choose(code)
		if err != nil {
			return nil, err
		}
		if now.placeOf(cookie) == chosen {
			return chosen, nil
		}
		claims := now.claimed(chosen, hashed(cookie), name)
		content, err := json.Marshal(claims)
		if err != nil {
			return nil, err
		}
		written, err := r.kept.write(ctx, now.version, map[string][]byte{claimsKey: content})
		if err == nil {
			r.become(stateOf(now.list, claims, written.version))
			log.Printf("%s is taken", chosen.Name)
			return chosen, nil
		}
		if !errors.Is(err, errChanged) {
			log.Printf("a claim can't be kept: %v", err)
			return nil, errUnsaved
		}
		if err := r.reread(ctx, now.list); err != nil {
			return nil, errUnsaved
		}
	}
	return nil, errUnsaved
}

func (s *state) choose(code string) (*place, error) {
	if code != "" {
		var chosen *place
		// All are compared, so that time tells nothing.
		for _, each := range s.Places {
			if subtle.ConstantTimeCompare([]byte(each.Password), []byte(code)) == 1 {
				chosen = each
			}
		}
		if chosen == nil {
			return nil, errCode
		}
		return chosen, nil
	}
	for _, each := range s.Places {
		if _, taken := s.claims[each.Name]; !taken && each.Attendee == "" {
			return each, nil
		}
	}
	return nil, errFull
}

// Returns the claims with one browser more at a place. The browser has no other: its cookie is for this one (door.made).
func (s *state) claimed(chosen *place, browser, name string) map[string]claim {
	claims := maps.Clone(s.claims)
	its, ok := claims[chosen.Name]
	if !ok {
		its = claim{Attendee: cmp.Or(chosen.Attendee, name), Since: time.Now().UTC().Truncate(time.Second)}
	}
	its.Browsers = append(slices.Clone(its.Browsers), browser)
	if len(its.Browsers) > mostBrowsers {
		its.Browsers = slices.Delete(its.Browsers, 1, len(its.Browsers)-mostBrowsers+1)
	}
	claims[chosen.Name] = its
	return claims
}

func hashed(cookie string) string {
	sum := sha256.Sum256([]byte(cookie))
	return hex.EncodeToString(sum[:])
}

// Returns a name as it can be shown.
func cleaned(name string) string { return cleanedTo(name, longestName) }

// Returns what a stranger wrote as one line that can be shown, of so many letters at most.
func cleanedTo(text string, longest int) string {
	shown := strings.Map(func(letter rune) rune {
		if unicode.IsSpace(letter) {
			return ' '
		}
		if !unicode.IsPrint(letter) || letter == unicode.ReplacementChar {
			return -1
		}
		return letter
	}, text)
	letters := []rune(strings.Join(strings.Fields(shown), " "))
	return string(letters[:min(len(letters), longest)])
}
