package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// All else is the workspace's.
	own = "/_door/"
	// By the prefix, no other host and no page without TLS can set them.
	browserCookie, roomCookie = "__Host-rayside-browser", "__Host-rayside-room"
	cookieLife                = 14 * 24 * time.Hour
	// In bytes: a form. It comes within so long.
	largestForm  = 4 << 10
	formPatience = 10 * time.Second
	// Between two claims of one place by its code: each is kept in Kubernetes.
	pace = time.Second
)

type door struct {
	room *room
	ways *ways
	// By it cookies are made out of what forms have: nobody else can make them.
	key []byte
	// The file of a workspace with what its attendee takes home.
	files string
	// The last claim of a place by its code, by its name.
	mutex sync.Mutex
	paces map[string]paced
}

type paced struct {
	at     time.Time
	cookie string
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := d.room.now()
	cookie := cookieOf(r, browserCookie)
	path, isOwn := strings.CutPrefix(r.URL.Path, own)
	if chosen := now.placeOf(cookie); chosen != nil && !isOwn {
		// At the root, it would be for all places and for the door.
		if r.Header.Get("Service-Worker") != "" && strings.LastIndex(r.URL.Path, "/") == 0 {
			http.Error(w, "No service worker is for all of this.", http.StatusForbidden)
			return
		}
		// A WebSocket lasts for hours, and ends with the claim.
		ctx, leave := context.WithCancel(r.Context())
		defer leave()
		go d.room.watch(ctx, cookie, chosen, leave)
		d.ways.to(chosen).ServeHTTP(w, r.WithContext(ctx))
		return
	}
	// Of strangers a body comes in time, or not at all: Go reads it before it answers.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(formPatience))
	if isOwn {
		d.serveOwn(w, r, now, path)
		return
	}
	if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, own, http.StatusSeeOther)
		return
	}
	http.Error(w, "This browser has no place here.", http.StatusUnauthorized)
}

func (d *door) serveOwn(w http.ResponseWriter, r *http.Request, now *state, path string) {
	w.Header().Set("Cache-Control", "no-store")
	key, isJoining := strings.CutPrefix(path, "join/")
	code, isEntering := strings.CutPrefix(path, "place/")
	isReading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case path == "" && isReading:
		d.welcome(w, r, now, http.StatusOK, "")
	case isJoining && isReading:
		// The key leaves the address, where others might see it.
		if isSame(key, now.Key) {
			setCookie(w, roomCookie, key)
		}
		http.Redirect(w, r, own, http.StatusSeeOther)
	case isEntering && isReading:
		d.confirm(w, r, now, code)
	case path == "home" && isReading, path == "home/files" && r.Method == http.MethodGet:
		d.takeHome(w, r, now, path == "home/files")
	case path == "claim" && r.Method == http.MethodPost:
		d.takeForm(w, r, now)
	default:
		http.NotFound(w, r)
	}
}

// Shows what a browser without a place can do.
func (d *door) welcome(w http.ResponseWriter, r *http.Request, now *state, status int, problem string) {
	if problem == "" && now.placeOf(cookieOf(r, browserCookie)) != nil {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	shown := page{Title: now.Title, Heading: now.Title, Once: random()}
	if isSame(cookieOf(r, roomCookie), now.Key) {
		shown.AsksName = true
		shown.Text = "Give your name, and a place is yours: an editor, and a Ray cluster of your own."
	} else {
		shown.Text = "Open the link that your teacher gave."
	}
	if problem != "" {
		shown.Text = problem
	}
	shown.write(w, status)
}

// Asks whoever opens a link of the sheet whether they mean it: a link may come from anybody.
func (d *door) confirm(w http.ResponseWriter, r *http.Request, now *state, code string) {
	chosen, err := now.choose(code)
	if code == "" || err != nil {
		d.welcome(w, r, now, http.StatusForbidden, "No place has this link.")
		return
	}
	shown := page{Title: now.Title, Heading: now.Title, Text: "This link leads into a place of this workshop.", Code: code, Once: random()}
	if had := now.placeOf(cookieOf(r, browserCookie)); had == chosen {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	} else if had != nil {
		shown.Text = "This browser has another place already. Enter this one only if the link is yours: you leave the other."
	}
	shown.write(w, http.StatusOK)
}

func (d *door) takeForm(w http.ResponseWriter, r *http.Request, now *state) {
	if !isOfThisSite(r) {
		http.Error(w, "This form was sent from another site.", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, largestForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "This form can't be read.", http.StatusBadRequest)
		return
	}
	once := r.PostForm.Get("once")
	if len(once) < len(random()) {
		d.welcome(w, r, now, http.StatusBadRequest, "This form is not complete. Open the link again.")
		return
	}
	name, code := cleaned(r.PostForm.Get("name")), r.PostForm.Get("code")
	cookie := d.made(code, once)
	if code == "" {
		if !isSame(cookieOf(r, roomCookie), now.Key) {
			d.welcome(w, r, now, http.StatusForbidden, "Open the link of the room that your teacher gave, first.")
			return
		}
		// Who has a place keeps it, whatever is sent.
		if now.placeOf(cookieOf(r, browserCookie)) != nil {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		if name == "" {
			d.welcome(w, r, now, http.StatusBadRequest, "Give a name, by which your teacher knows you.")
			return
		}
	} else if chosen, err := now.choose(code); err == nil && !d.mayClaim(chosen, cookie, now.placeOf(cookie)) {
		d.welcome(w, r, now, http.StatusTooManyRequests, "Somebody entered this place a moment ago. Try again.")
		return
	}
	d.claim(w, r, now, cookie, name, code)
}

// Returns the cookie of a form: nobody knew it before, so that nobody else has it. It is for the place of this code alone,
// so that one form leads to and fro between no two places, each time with a claim to be kept.
func (d *door) made(code, once string) string {
	mac := hmac.New(sha256.New, d.key)
	mac.Write([]byte(code + "\x00" + once))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (d *door) claim(w http.ResponseWriter, r *http.Request, now *state, cookie, name, code string) {
	switch _, err := d.room.claim(r.Context(), cookie, name, code); {
	case err == nil:
		setCookie(w, browserCookie, cookie)
		// What another place has left in this browser is none of this one's. Without the cache, VS Code is loaded anew.
		w.Header().Set("Clear-Site-Data", `"cache", "storage"`)
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case errors.Is(err, errCode):
		d.welcome(w, r, now, http.StatusForbidden, "No place has this link.")
	case errors.Is(err, errFull):
		d.welcome(w, r, now, http.StatusServiceUnavailable, "All places are taken. Tell your teacher, who can add some.")
	default:
		d.welcome(w, r, now, http.StatusServiceUnavailable, "Your place could not be kept for you. Try again in a moment.")
	}
}

// Returns whether a form's cookie may have a place now. A form that is sent twice, as by a double click, may both times:
// the browser waits for the second answer alone.
func (d *door) mayClaim(chosen *place, cookie string, had *place) bool {
	if had == chosen {
		return true
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	last := d.paces[chosen.Name]
	if time.Since(last.at) < pace && last.cookie != cookie {
		return false
	}
	d.paces[chosen.Name] = paced{time.Now(), cookie}
	return true
}

// Returns whether a page of ours sent a form: browsers say where a form comes from.
func isOfThisSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Scheme == "https" && origin.Host == r.Host
}

func cookieOf(r *http.Request, name string) string {
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

func random() string {
	secret := make([]byte, 32)
	rand.Read(secret)
	return base64.RawURLEncoding.EncodeToString(secret)
}

func setCookie(w http.ResponseWriter, name, value string) {
	http.SetCookie(w, &http.Cookie{
		Name:     name,
		Value:    value,
		Path:     "/",
		MaxAge:   int(cookieLife.Seconds()),
		Secure:   true,
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	})
}

func isSame(given, expected string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(expected)) == 1
}
